from typing import TYPE_CHECKING, Final

from streamlog.cli.cluster.controller import ask
from streamlog.cli.options.options import SERVERS, Json, Servers
from streamlog.cli.output import print_json, print_pairs, print_table, say
from streamlog.model import NodeId

if TYPE_CHECKING:
    from streamlog.cli.cluster.controller import Controller
    from streamlog.client.topology import Topology

NO_CONTROLLER: Final = NodeId(-1)


def info(servers: Servers = SERVERS, as_json: Json = False) -> None:
    """Nodes, streams, and who leads what."""
    topology, is_decided = ask(servers, _look)
    if not is_decided:
        topology = topology._replace(controller=NO_CONTROLLER)
    if as_json:
        print_json(_as_json(topology))
        return
    if topology.controller == NO_CONTROLLER:
        controller = (
            "none: leaders and in-sync replicas are as the last one knew them; "
            "`streamlog cluster check` says who answers"
        )
    else:
        controller = f"node {topology.controller}"
    print_pairs([("Cluster", topology.cluster_id), ("Controller", controller)])
    say()
    print_table(
        ("NODE", "ADDRESS", "RACK"),
        ((node.node_id, node.address, node.rack) for node in topology.nodes.values()),
    )
    say()
    print_table(
        ("STREAM", "PARTITION", "LEADER", "EPOCH", "REPLICAS", "IN SYNC"),
        (
            (
                topic.name,
                it.partition,
                None if it.leader < 0 else it.leader,
                it.leader_epoch,
                it.replicas,
                it.isr,
            )
            for topic in topology.topics.values()
            for it in topic.partitions
        ),
    )


async def _look(controller: "Controller") -> "tuple[Topology, bool]":
    """And whether there is a controller."""
    return await controller.topology(), await controller.has_controller()


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
