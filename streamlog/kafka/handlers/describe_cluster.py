"""DescribeCluster (60), versions 0 to 2: the nodes and the controller (KIP-700).

v1  brokers or controllers may be asked for; here every node is both on one address
v2  fenced nodes are told, where they are asked for
"""

from typing import Any, Final

from kio.schema.errors import ErrorCode

from streamlog.kafka.context import Context
from streamlog.kafka.topology import OPERATIONS_UNKNOWN, live_nodes, shown_controller, shown_nodes
from streamlog.wire.control import Message

BROKERS: Final = 1
CONTROLLERS: Final = 2


async def handle(request: Message, _version: int, context: Context) -> Message:
    image, endpoints = context.metadata.image, request.get("endpoint_type", BROKERS)
    answer = {"endpoint_type": endpoints, "cluster_id": image.cluster_id}
    if endpoints != BROKERS:
        is_known = endpoints == CONTROLLERS
        return {
            **answer,
            "error_code": ErrorCode.mismatched_endpoint_type
            if is_known
            else ErrorCode.unsupported_endpoint_type,
            "error_message": f"endpoint type {endpoints}: ask for brokers (1)",
        }
    live = live_nodes(image) | {context.node_id}
    brokers = [
        _broker(node, is_fenced=node["node_id"] not in live) for node in shown_nodes(context)
    ]
    if request.get("include_fenced_brokers", False):
        told = {broker["broker_id"] for broker in brokers}
        brokers.extend(
            _broker(
                {"node_id": it.node_id, "host": it.host, "port": it.port, "rack": it.rack},
                is_fenced=True,
            )
            for it in image.nodes.values()
            if it.node_id not in told
        )
    return {
        **answer,
        "error_code": ErrorCode.none,
        "controller_id": shown_controller(context),
        "brokers": brokers,
        "cluster_authorized_operations": OPERATIONS_UNKNOWN,
    }


def _broker(node: Message, *, is_fenced: bool) -> dict[str, Any]:
    return {
        "broker_id": node["node_id"],
        "host": node["host"],
        "port": node["port"],
        "rack": node["rack"],
        "is_fenced": is_fenced,
    }
