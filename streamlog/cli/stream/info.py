"""``streamlog stream info``: settings and content as NATS clients see them, and who keeps it."""

import dataclasses
from typing import TYPE_CHECKING, Any

from streamlog.cli.options import options as o
from streamlog.cli.options.connection_options import chosen_security
from streamlog.cli.options.management import ask
from streamlog.cli.output import print_json, print_pairs, print_table, say
from streamlog.errors import StreamlogError

if TYPE_CHECKING:
    from streamlog.client.topology import PartitionInfo
    from streamlog.jetstream.client import ManagementClient, StreamDetails

Partitions = list[dict[str, Any]]


def info(
    stream: o.StreamName,
    servers: o.Servers = o.SERVERS,
    nats: o.NatsUrl = o.NATS_URL,
    creds: o.Credentials = None,
    domain: o.Domain = o.DOMAIN,
    as_json: o.Json = False,
) -> None:
    """One stream: its settings, what is in it, and which nodes keep it."""
    details, partitions, problem = ask(
        nats, creds, domain, lambda client: _look_up(client, stream, servers)
    )
    if as_json:
        print_json({**details_json(details), "partitions": partitions})
        return
    content = dataclasses.asdict(details)
    for hidden in ("config", "did_create", "replicas"):
        del content[hidden]
    print_pairs((*details.config, *content.items()))
    say()
    if partitions is None:
        say(f"which nodes keep it is not known without --bootstrap-server: {problem}")
        return
    print_table(
        ("PARTITION", "LEADER", "EPOCH", "REPLICAS", "IN SYNC", "RECORDS BEHIND"),
        (_row(partition) for partition in partitions),
    )


def details_json(details: "StreamDetails") -> dict[str, Any]:
    """As ``--json`` shows a stream."""
    return {
        "config": details.config.model_dump(),
        "created": details.created.isoformat(),
        "messages": details.messages,
        "size_bytes": details.size_bytes,
        "first_sequence": details.first_sequence,
        "last_sequence": details.last_sequence,
        "first_time": details.first_time and details.first_time.isoformat(),
        "last_time": details.last_time and details.last_time.isoformat(),
        "leader": details.leader,
        "auto_paused": details.auto_paused,
    }


async def _look_up(
    client: "ManagementClient", stream: str, servers: str
) -> tuple["StreamDetails", Partitions | None, str]:
    """Details; partitions, or why nobody could be asked for them."""
    details = await client.info(stream)
    try:
        return details, await _partitions(client, stream, servers), ""
    except StreamlogError as error:
        return details, None, str(error)


async def _partitions(client: "ManagementClient", stream: str, servers: str) -> Partitions:
    from streamlog.client.cluster import Cluster
    from streamlog.model import NO_LEADER, TopicPartition

    async with Cluster.at(servers, security=chosen_security()) as cluster:
        infos = (await cluster.topic(stream)).partitions
    leaders = {
        TopicPartition(stream, it.partition): it.leader for it in infos if it.leader != NO_LEADER
    }
    lags = await client.lags(leaders)
    return [_partition(it, lags.get(TopicPartition(stream, it.partition), {})) for it in infos]


def _partition(info: "PartitionInfo", lags: dict[Any, int]) -> dict[str, Any]:
    """A follower's ``lag`` is None where the leader could not be asked."""
    return {
        "partition": info.partition,
        "leader": None if info.leader < 0 else info.leader,
        "leader_epoch": info.leader_epoch,
        "replicas": [
            {
                "node_id": node,
                "in_sync": node in info.isr,
                "lag": 0 if node == info.leader else lags.get(node),
            }
            for node in info.replicas
        ],
    }


def _row(partition: dict[str, Any]) -> tuple[object, ...]:
    replicas = partition["replicas"]
    behind = [f"{it['node_id']}: {it['lag']}" for it in replicas if it["lag"]]
    return (
        partition["partition"],
        partition["leader"],
        partition["leader_epoch"],
        [it["node_id"] for it in replicas],
        [it["node_id"] for it in replicas if it["in_sync"]],
        behind,
    )
