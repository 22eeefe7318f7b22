"""What AlterConfigs and IncrementalAlterConfigs have in common: topics are altered, each by itself.

A topic's changes are made together or not at all. A node's settings stand in its own file.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from kio.schema.errors import ErrorCode

from streamlog.acl.rules import Operation
from streamlog.errors import StreamlogError
from streamlog.fairness import cooperatively
from streamlog.kafka.auth.resource_checks import check_bindings, check_topic
from streamlog.kafka.context import Context
from streamlog.kafka.read_barrier import newest_image
from streamlog.kafka.refusal import NAMED_TWICE, RequestRefused, told
from streamlog.metadata import controller
from streamlog.metadata.stream.alteration import SettingChange, altered
from streamlog.metadata.stream.stream_subjects import BINDING_SETTINGS
from streamlog.wire.control import Message

TOPIC: Final = 2
NODE: Final = 4

Changes = tuple[SettingChange, ...]


async def alter_resources(
    request: Message, context: Context, changes_of: Callable[[Message], Changes]
) -> Message:
    """``changes_of`` a resource may raise errors of streamlog."""
    counts = Counter(_key(resource) for resource in request["resources"])
    responses: list[dict[str, Any]] = []
    async for resource in cooperatively(request["resources"]):
        outcome: dict[str, Any] = {"error_code": ErrorCode.none, "error_message": None}
        try:
            if counts[_key(resource)] > 1:
                raise RequestRefused(ErrorCode.invalid_request, NAMED_TWICE)
            _check(resource)
            await _alter(
                resource["resource_name"], changes_of(resource), request["validate_only"], context
            )
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


def _check(resource: Message) -> None:
    if resource["resource_type"] == NODE:
        raise RequestRefused(
            ErrorCode.invalid_request,
            "a node's settings are not changed from outside: change its file, and restart it",
        )
    if resource["resource_type"] != TOPIC:
        text = f"resource type {resource['resource_type']}: only topics (2) can be altered"
        raise RequestRefused(ErrorCode.invalid_request, text)
    names = Counter(config["name"] for config in resource["configs"])
    twice = sorted(name for name, count in names.items() if count > 1)
    if twice:
        raise RequestRefused(ErrorCode.invalid_request, f"{', '.join(twice)}: {NAMED_TWICE}")


async def _alter(name: str, changes: Changes, validate_only: bool, context: Context) -> None:
    check_topic(Operation.ALTER_CONFIGS, name, context)
    seen = None
    if context.access is not None and any(it.setting in BINDING_SETTINGS for it in changes):
        seen = (await newest_image(context)).stream(name).config
        check_bindings(altered(seen, changes), context, seen)
    if validate_only:
        image = await newest_image(context)
        controller.update_stream(image, altered(image.stream(name).config, changes))
    else:
        await context.metadata.alter_stream(name, changes, seen=seen)
