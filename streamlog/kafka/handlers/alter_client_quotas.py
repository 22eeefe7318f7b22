"""AlterClientQuotas (49), versions 0 and 1: what clients may use (KIP-546).

Each entry by itself, and its keys together or not at all. They are kept in the cluster's metadata
and hold on every node, for what goes through that node.
"""

from collections import Counter
from typing import Any

from kio.schema.errors import ErrorCode
from pydantic import ValidationError

from streamlog.errors import StreamlogError
from streamlog.fairness import cooperatively
from streamlog.kafka.context import Context
from streamlog.kafka.handlers.describe_client_quotas import CLIENT_ID
from streamlog.kafka.refusal import NAMED_TWICE, RequestRefused, told
from streamlog.metadata import controller
from streamlog.metadata.commands import AlterQuota
from streamlog.metadata.image.quota import QUOTA_KEYS, QuotaKey
from streamlog.wire.control import Message
from streamlog.wire.header import CLIENT_ID_CHARS_MAX

_ELSEWHERE = {
    "request_percentage": "of threads, which are not here; request_rate is of requests a second",
    "controller_mutation_rate": "changes of streams count as requests; see request_rate",
}


async def handle(request: Message, _version: int, context: Context) -> Message:
    counts = Counter(map(_key, request["entries"]))
    entries: list[dict[str, Any]] = []
    async for entry in cooperatively(request["entries"]):
        outcome: dict[str, Any] = {"error_code": ErrorCode.none, "error_message": None}
        try:
            if counts[_key(entry)] > 1:
                raise RequestRefused(ErrorCode.invalid_request, NAMED_TWICE)
            command = _command(entry)
            if request["validate_only"]:
                controller.alter_quota(context.metadata.image, command)
            else:
                await context.metadata.request(command)
        except StreamlogError as error:
            outcome = told(error)
        entries.append({**outcome, "entity": entry["entity"]})
    return {"entries": entries}


def _key(entry: Message) -> tuple[tuple[str, str | None], ...]:
    return tuple((it["entity_type"], it["entity_name"]) for it in entry["entity"])


def _command(entry: Message) -> AlterQuota:
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
