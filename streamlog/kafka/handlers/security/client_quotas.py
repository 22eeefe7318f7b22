"""DescribeClientQuotas, AlterClientQuotas."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from pydantic import ValidationError

from streamlog.errors import StreamlogError
from streamlog.fairness import cooperatively
from streamlog.kafka.context import Context
from streamlog.kafka.refusal import NAMED_TWICE, RequestRefused, told
from streamlog.metadata.commands import AlterQuota
from streamlog.metadata.image.quota import QUOTA_KEYS, Quota, QuotaKey
from streamlog.wire.api_messages import Message
from streamlog.wire.error_codes import ErrorCode
from streamlog.wire.header import CLIENT_ID_CHARS_MAX

CLIENT_ID: Final = "client-id"
ENTITY_TYPES: Final = frozenset({CLIENT_ID, "user", "ip"})

EXACT, DEFAULT, ANY = range(3)


async def describe_client_quotas(request: Message, _version: int, context: Context) -> Message:
    """DescribeClientQuotas (48), versions 0 and 1: what clients may use (KIP-546).

    Clients are told apart by their client ids: there are no quotas of users or addresses, and who asks
    for these finds none.
    """
    try:
        quotas = [(it.client_id, it.quota) for it in await context.control.quotas.list()]
        _check_components(request["components"])
    except StreamlogError as error:
        return {**told(error), "entries": None}
    entries = _entries(request["components"], request["strict"], quotas)
    return {"error_code": ErrorCode.none, "error_message": None, "entries": list(entries)}


def _check_components(components: Sequence[Message]) -> None:
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
    components: Sequence[Message], strict: bool, quotas: Iterable[tuple[str | None, Quota]]
) -> Iterator[dict[str, Any]]:
    """All that match every component; ``strict``: and that nothing else tells apart."""
    if strict and not components:
        return
    for client_id, quota in quotas:
        if all(_matches(component, client_id) for component in components):
            yield _entry(client_id, quota)


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


_ELSEWHERE = {
    "request_percentage": "of threads, which are not here; request_rate is of requests a second",
    "controller_mutation_rate": "changes of streams count as requests; see request_rate",
}


async def alter_client_quotas(request: Message, _version: int, context: Context) -> Message:
    """AlterClientQuotas (49), versions 0 and 1: what clients may use (KIP-546).

    Each entry by itself, and its keys together or not at all. They are kept in the cluster's metadata
    and hold on every node, for what goes through that node.
    """
    counts = Counter(map(_entity_key, request["entries"]))
    entries: list[dict[str, Any]] = []
    async for entry in cooperatively(request["entries"]):
        outcome: dict[str, Any] = {"error_code": ErrorCode.none, "error_message": None}
        try:
            if counts[_entity_key(entry)] > 1:
                raise RequestRefused(ErrorCode.invalid_request, NAMED_TWICE)
            command = _quota_command(entry)
            await context.control.quotas.alter(
                command.client_id, command.values, validate_only=request["validate_only"]
            )
        except StreamlogError as error:
            outcome = told(error)
        entries.append({**outcome, "entity": entry["entity"]})
    return {"entries": entries}


def _entity_key(entry: Message) -> tuple[tuple[str, str | None], ...]:
    return tuple((it["entity_type"], it["entity_name"]) for it in entry["entity"])


def _quota_command(entry: Message) -> AlterQuota:
    """Raises Refused."""
    try:
        return AlterQuota(client_id=_client_id(entry), values=_values(entry))
    except ValidationError as error:
        first = error.errors()[0]
        text = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise RequestRefused(ErrorCode.invalid_request, text) from None


def _client_id(entry: Message) -> str | None:
    if [it["entity_type"] for it in entry["entity"]] != [CLIENT_ID]:
        text = "quotas are for client ids: there are none of users or addresses"
        raise RequestRefused(ErrorCode.invalid_request, text)
    name: str | None = entry["entity"][0]["entity_name"]
    if name is not None and len(name) > CLIENT_ID_CHARS_MAX:
        text = f"a client id has at most {CLIENT_ID_CHARS_MAX} characters"
        raise RequestRefused(ErrorCode.invalid_request, text)
    return name


def _values(entry: Message) -> dict[QuotaKey, float | None]:
    values: dict[QuotaKey, float | None] = {}
    for op in entry["ops"]:
        key = op["key"]
        if key not in QUOTA_KEYS:
            why = _ELSEWHERE.get(key, f"only {', '.join(QUOTA_KEYS)} are known")
            raise RequestRefused(ErrorCode.invalid_request, f"{key[:60]}: {why}")
        if key in values:
            raise RequestRefused(ErrorCode.invalid_request, f"{key}: {NAMED_TWICE}")
        values[key] = None if op["remove"] else op["value"]
    return values
