"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs; of topics, nodes, and share groups.

A topic's changes are made together or not at all. A node's settings stand in its own file.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final

from streamlog.acl.rules import Operation
from streamlog.control.groups import GroupConfigChange
from streamlog.errors import StreamlogError
from streamlog.fairness import cooperatively
from streamlog.groups.shares.share_group_config import GROUP_CONFIGS
from streamlog.kafka.config_entries import (
    ConfigEntry,
    shown_group_configs,
    shown_node_configs,
    shown_topic_configs,
)
from streamlog.kafka.context import Context
from streamlog.kafka.read_barrier import newest_image
from streamlog.kafka.refusal import NAMED_TWICE, RequestRefused, told
from streamlog.metadata.stream.alteration import Operation as Alteration
from streamlog.metadata.stream.alteration import SettingChange
from streamlog.metadata.stream.inert_configs import INERT_CONFIGS, InertConfig
from streamlog.metadata.stream.setting_type import OUR_KEYS
from streamlog.metadata.stream.settings_translation import SETTINGS, topic_config
from streamlog.wire.api_messages import Message
from streamlog.wire.error_codes import ErrorCode

TOPIC: Final = 2
NODE: Final = 4
GROUP: Final = 32
"""A share group; see ``groups.shares.share_group_config``."""

Changes = tuple[SettingChange, ...]


async def alter_resources(
    request: Message,
    context: Context,
    changes_of: Callable[[Message], Changes],
    group_changes_of: Callable[[Message], tuple[GroupConfigChange, ...]],
) -> Message:
    """``changes_of`` a resource, and of a group, may raise errors of streamlog."""
    counts = Counter(_key(resource) for resource in request["resources"])
    responses: list[dict[str, Any]] = []
    async for resource in cooperatively(request["resources"]):
        outcome: dict[str, Any] = {"error_code": ErrorCode.none, "error_message": None}
        try:
            if counts[_key(resource)] > 1:
                raise RequestRefused(ErrorCode.invalid_request, NAMED_TWICE)
            _check_resource(resource)
            name, validate_only = resource["resource_name"], request["validate_only"]
            if resource["resource_type"] == GROUP:
                await context.control.groups.set_configs(
                    name, group_changes_of(resource), validate_only=validate_only
                )
            else:
                changes = changes_of(resource)
                await context.control.streams.alter(name, changes, validate_only=validate_only)
        except StreamlogError as error:
            outcome = told(error)
        responses.append(
            {
                "resource_type": resource["resource_type"],
                "resource_name": resource["resource_name"],
                **outcome,
            }
        )
    return {"responses": responses}


def check_value(key: str, value: str | None) -> str:
    """Raises Refused: null is no value."""
    if value is None:
        text = f"{key}: null is no value; delete the config to have its default"
        raise RequestRefused(ErrorCode.invalid_request, text)
    return value


def _key(resource: Message) -> tuple[int, str]:
    return resource["resource_type"], resource["resource_name"]


def _check_resource(resource: Message) -> None:
    if resource["resource_type"] == NODE:
        raise RequestRefused(
            ErrorCode.invalid_request,
            "a node's settings are not changed from outside: change its file, and restart it",
        )
    if resource["resource_type"] not in (TOPIC, GROUP):
        text = f"resource type {resource['resource_type']}: only topics (2) and groups (32) can be altered"
        raise RequestRefused(ErrorCode.invalid_request, text)
    names = Counter(config["name"] for config in resource["configs"])
    twice = sorted(name for name, count in names.items() if count > 1)
    if twice:
        raise RequestRefused(ErrorCode.invalid_request, f"{', '.join(twice)}: {NAMED_TWICE}")


async def describe_configs(request: Message, _version: int, context: Context) -> Message:
    """DescribeConfigs (32), versions 1 to 4: topic configs of streams, and settings of this node.

    v1  synonyms (KIP-226)
    v3  types and documentation (KIP-569)

    What is a stream's own, what the node's and what a default is told by the source. A setting counts
    as the stream's own where it is not the default. Who is asked about twice is told of once.
    """
    await newest_image(context)
    resources = {(it["resource_type"], it["resource_name"]): it for it in request["resources"]}
    asked = cooperatively(resources.values())
    return {"results": [await _described(it, request, context) async for it in asked]}


async def _described(resource: Message, request: Message, context: Context) -> dict[str, Any]:
    result = {
        "resource_type": resource["resource_type"],
        "resource_name": resource["resource_name"],
        "error_code": ErrorCode.none,
        "error_message": None,
        "configs": [],
    }
    try:
        configs = await _shown_configs(resource, context)
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


async def _shown_configs(resource: Message, context: Context) -> Iterable[ConfigEntry]:
    kind, name = resource["resource_type"], resource["resource_name"]
    if kind == TOPIC:
        config = await context.control.streams.settings(name)
        return shown_topic_configs(config, context.node_settings.log)
    if kind == GROUP:
        own = await context.control.groups.configs(name)
        configs = {it.name: it.value for it in own.configs}
        return shown_group_configs(configs, context.node_settings.groups)
    if kind != NODE:
        text = f"resource type {kind}: only topics (2), brokers (4) and groups (32) have configs"
        raise RequestRefused(ErrorCode.invalid_request, text)
    if context.access is not None:
        context.access.check_cluster(Operation.DESCRIBE_CONFIGS)
    if name == "":
        return ()  # what holds for all nodes at once: there is no such thing
    if name != str(context.node_id):
        text = f"this is node {context.node_id}: ask node {name[:20]!r} itself"
        raise RequestRefused(ErrorCode.invalid_request, text)
    return shown_node_configs(context.node_settings, context.address())


KAFKA_SETTINGS: Final = (
    *(
        row.name
        for row in SETTINGS
        if row.kafka is not None and row.kafka != "subject" and not row.kafka.startswith(OUR_KEYS)
    ),
    *INERT_CONFIGS,
)
"""Settings that Kafka has configs for."""


async def alter_configs(request: Message, _version: int, context: Context) -> Message:
    """AlterConfigs (33), versions 0 to 2: all of a topic's configs are replaced.

    Configs of Kafka's that are not named go back to their defaults. Those that only streamlog has, the
    ``subject`` above all, stay as they are: a program that knows nothing of them must not end what is
    stored.
    """
    return await alter_resources(request, context, _all_changes, _all_group_changes)


def _all_changes(resource: Message) -> Changes:
    named = {
        topic_config(it["name"]).name: check_value(it["name"], it["value"])
        for it in resource["configs"]
    }
    unnamed = (
        SettingChange(setting=it, operation="reset") for it in KAFKA_SETTINGS if it not in named
    )
    values = (SettingChange(setting=name, text=text) for name, text in named.items())
    return (*unnamed, *values)


_OPERATIONS: Final[dict[int, Alteration]] = {0: "set", 1: "reset", 2: "append", 3: "subtract"}


async def incremental_alter_configs(request: Message, _version: int, context: Context) -> Message:
    """IncrementalAlterConfigs (44), versions 0 and 1: some of a topic's configs (KIP-339).

    Set, delete (back to the default), and for ``subject`` and ``cleanup.policy``, which are lists,
    append and subtract. All else stays as it is.
    """
    return await alter_resources(request, context, _some_changes, _some_group_changes)


def _all_group_changes(resource: Message) -> tuple[GroupConfigChange, ...]:
    named = {it["name"]: check_value(it["name"], it["value"]) for it in resource["configs"]}
    unnamed = (GroupConfigChange(it) for it in GROUP_CONFIGS if it not in named)
    return (*unnamed, *(GroupConfigChange(*it) for it in named.items()))


def _some_group_changes(resource: Message) -> tuple[GroupConfigChange, ...]:
    return tuple(_group_change(it) for it in resource["configs"])


def _group_change(config: Message) -> GroupConfigChange:
    key, operation = config["name"], _OPERATIONS.get(config["config_operation"])
    if operation == "reset":
        return GroupConfigChange(key)
    if operation != "set":
        raise RequestRefused(ErrorCode.invalid_config, f"{key}: is no list; set it instead")
    return GroupConfigChange(key, check_value(key, config["value"]))


def _some_changes(resource: Message) -> Changes:
    return tuple(_change(config) for config in resource["configs"])


def _change(config: Message) -> SettingChange:
    key = config["name"]
    operation = _OPERATIONS.get(config["config_operation"])
    if operation is None:
        text = f"{key}: there is no operation {config['config_operation']}, only 0 to 3"
        raise RequestRefused(ErrorCode.invalid_request, text)
    row = topic_config(key)
    is_list = row.kind == "list" if isinstance(row, InertConfig) else row.is_list
    if operation in ("append", "subtract") and not is_list:
        raise RequestRefused(ErrorCode.invalid_config, f"{key}: is no list; set it instead")
    text = "" if operation == "reset" else check_value(key, config["value"])
    return SettingChange(setting=row.name, operation=operation, text=text)
