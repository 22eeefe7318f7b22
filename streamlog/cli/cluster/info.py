from typing import TYPE_CHECKING

from streamlog.cli.cluster.controller import ask
from streamlog.cli.options import SERVERS, Json, Servers
from streamlog.cli.output import print_json, print_pairs, print_table, say

if TYPE_CHECKING:
    from streamlog.client.topology import Topology


def info(servers: Servers = SERVERS, as_json: Json = False) -> None:
    """Nodes, streams, and who leads what."""
    topology = ask(servers, lambda controller: controller.topology())
    if as_json:
        print_json(_as_json(topology))
        return
    controller = "none" if topology.controller < 0 else f"node {topology.controller}"
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
