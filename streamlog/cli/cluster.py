import asyncio
from typing import TYPE_CHECKING

import typer

from streamlog.cli.options import SERVERS, Json, Servers
from streamlog.cli.output import print_json, print_pairs, print_table

if TYPE_CHECKING:
    from streamlog.client.topology import Topology

app = typer.Typer(help="Look at the cluster.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Look at the cluster."""  # a group, though it has one command


@app.command()
def info(servers: Servers = SERVERS, as_json: Json = False) -> None:
    """Nodes, streams, and who leads what."""
    topology = asyncio.run(_topology(servers))
    if as_json:
        print_json(_as_json(topology))
        return
    print_pairs([("Cluster", topology.cluster_id), ("Controller", f"node {topology.controller}")])
    print()
    print_table(
        ("NODE", "ADDRESS", "RACK"),
        ((node.node_id, node.address, node.rack) for node in topology.nodes.values()),
    )
    print()
    print_table(
        ("STREAM", "PARTITION", "LEADER", "EPOCH", "REPLICAS", "IN SYNC"),
        (
            (topic.name, it.partition, it.leader, it.leader_epoch, it.replicas, it.isr)
            for topic in topology.topics.values()
            for it in topic.partitions
        ),
    )


async def _topology(servers: str) -> "Topology":
    from streamlog.client.cluster import Cluster

    async with Cluster.at(servers) as cluster:
        return await cluster.topology()


def _as_json(topology: "Topology") -> dict[str, object]:
    return {
        "cluster_id": topology.cluster_id,
        "controller": topology.controller,
        "nodes": [node._asdict() for node in topology.nodes.values()],
        "streams": [
            {
                "name": topic.name,
                "stream_id": topic.topic_id,
                "partitions": [it._asdict() for it in topic.partitions],
            }
            for topic in topology.topics.values()
        ],
    }
