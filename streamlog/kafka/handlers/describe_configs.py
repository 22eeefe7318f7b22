"""DescribeConfigs (32), versions 1 to 4: topic configs of streams, and settings of this node.

v1  synonyms (KIP-226)
v3  types and documentation (KIP-569)

What is a stream's own, what the node's and what a default is told by the source. A setting counts
as the stream's own where it is not the default. Who is asked about twice is told of once.
"""

from collections.abc import Iterable
from typing import Any

from kio.schema.errors import ErrorCode

from streamlog.acl.rules import Operation
from streamlog.errors import StreamlogError
from streamlog.fairness import cooperatively
from streamlog.kafka.auth.resource_checks import check_topic
from streamlog.kafka.configs.config_changes import NODE, TOPIC
from streamlog.kafka.configs.config_entry import ConfigEntry
from streamlog.kafka.configs.node_configs import shown_node_configs
from streamlog.kafka.configs.topic_configs import shown_topic_configs
from streamlog.kafka.context import Context
from streamlog.kafka.read_barrier import newest_image
from streamlog.kafka.refusal import RequestRefused, told
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.wire.control import Message


async def handle(request: Message, _version: int, context: Context) -> Message:
    image = await newest_image(context)
    resources = {(it["resource_type"], it["resource_name"]): it for it in request["resources"]}
    asked = cooperatively(resources.values())
    return {"results": [_result(it, request, image, context) async for it in asked]}


def _result(
    resource: Message, request: Message, image: MetadataImage, context: Context
) -> dict[str, Any]:
    result = {
        "resource_type": resource["resource_type"],
        "resource_name": resource["resource_name"],
        "error_code": ErrorCode.none,
        "error_message": None,
        "configs": [],
    }
    try:
        configs = _configs(resource, image, context)
    except StreamlogError as error:
        return {**result, **told(error)}
    keys = frozenset(resource["configuration_keys"] or ())
    documentation = request.get("include_documentation", False)
    result["configs"] = [
        config.told(synonyms=request["include_synonyms"], documentation=documentation)
        for config in configs
        if not keys or config.name in keys
    ]
    return result


def _configs(resource: Message, image: MetadataImage, context: Context) -> Iterable[ConfigEntry]:
    kind, name = resource["resource_type"], resource["resource_name"]
    if kind == TOPIC:
        check_topic(Operation.DESCRIBE_CONFIGS, name, context)
        return shown_topic_configs(image.stream(name).config, context.node_settings.log)
    if kind != NODE:
        text = f"resource type {kind}: only topics (2) and brokers (4) have configs"
        raise RequestRefused(ErrorCode.invalid_request, text)
    if context.access is not None:
        context.access.check_cluster(Operation.DESCRIBE_CONFIGS)
    if name == "":
        return ()  # what holds for all nodes at once: there is no such thing
    if name != str(context.node_id):
        text = f"this is node {context.node_id}: ask node {name[:20]!r} itself"
        raise RequestRefused(ErrorCode.invalid_request, text)
    return shown_node_configs(context.node_settings, context.address())
