"""DescribeClientQuotas (48), versions 0 and 1: what clients may use (KIP-546).

Clients are told apart by their client ids: there are no quotas of users or addresses, and who asks
for these finds none.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from kio.schema.errors import ErrorCode

from streamlog.errors import StreamlogError
from streamlog.kafka.context import Context
from streamlog.kafka.quotas import Quotas
from streamlog.kafka.read_barrier import newest_image
from streamlog.kafka.refusal import RequestRefused, told
from streamlog.metadata.image.quota import QUOTA_KEYS, Quota
from streamlog.wire.control import Message

CLIENT_ID: Final = "client-id"
ENTITY_TYPES: Final = frozenset({CLIENT_ID, "user", "ip"})

EXACT, DEFAULT, ANY = range(3)


async def handle(request: Message, _version: int, context: Context) -> Message:
    try:
        _check(request["components"])
    except StreamlogError as error:
        return {**told(error), "entries": None}
    image = await newest_image(context)
    entries = _entries(request["components"], request["strict"], image.quotas)
    return {"error_code": ErrorCode.none, "error_message": None, "entries": list(entries)}


def _check(components: Sequence[Message]) -> None:
    """Raises Refused."""
    types = [it["entity_type"] for it in components]
    for component in components:
        kind, match = component["entity_type"], component["match_type"]
        if kind not in ENTITY_TYPES:
            text = f"entity type {kind[:40]!r}: only client-id, user and ip are known"
            raise RequestRefused(ErrorCode.unsupported_version, text)
        if types.count(kind) > 1:
            raise RequestRefused(ErrorCode.invalid_request, f"{kind} is asked for twice")
        if match not in (EXACT, DEFAULT, ANY):
            text = f"match type {match}: 0 to 2 are known"
            raise RequestRefused(ErrorCode.invalid_request, text)
        if (component["match"] is None) != (match != EXACT):
            text = "a name belongs to match type 0, and to no other"
            raise RequestRefused(ErrorCode.invalid_request, text)


def _entries(
    components: Sequence[Message], strict: bool, quotas: Quotas
) -> Iterator[dict[str, Any]]:
    """All that match every component; ``strict``: and that nothing else tells apart."""
    if strict and not components:
        return
    for client_id in sorted(quotas, key=lambda it: (it is not None, it or "")):
        if all(_matches(component, client_id) for component in components):
            yield _entry(client_id, quotas[client_id])


def _matches(component: Message, client_id: str | None) -> bool:
    if component["entity_type"] != CLIENT_ID:
        return False
    match component["match_type"]:
        case 0:
            return client_id is not None and client_id == component["match"]
        case 1:
            return client_id is None
        case _:
            return True


def _entry(client_id: str | None, quota: Quota) -> dict[str, Any]:
    values = ((key, getattr(quota, key)) for key in QUOTA_KEYS)
    return {
        "entity": [{"entity_type": CLIENT_ID, "entity_name": client_id}],
        "values": [{"key": key, "value": value} for key, value in values if value is not None],
    }
