"""Which messages have those before them go: ``Nats-Rollup``, ``sub`` or ``all``. Pure."""

import json
from collections.abc import Collection
from typing import Final

from streamlog.ingest.admission.publish_headers import Headers
from streamlog.ingest.admission.refusal import PublishRefusal

HEADER: Final = b"Nats-Rollup"
SUBJECT: Final = b"sub"
ALL: Final = b"all"


def _failed(description: str) -> PublishRefusal:
    return PublishRefusal(500, 10111, description, "rollup")


_NOT_PERMITTED: Final = _failed("rollup not permitted")
_NOT_FIRST_OF_SUBJECT: Final = _failed("batch rollup sub invalid")
_NOT_FIRST: Final = _failed("batch rollup all invalid")


def asked_rollup(headers: Headers) -> bytes:
    """``sub``, ``all``, what else is asked for; or b""."""
    return headers.get(HEADER, b"").lower()


def objection(headers: Headers, *, allowed: bool) -> PublishRefusal | None:
    asked = asked_rollup(headers)
    if not asked:
        return None
    if not allowed:
        return _NOT_PERMITTED
    if asked in (SUBJECT, ALL):
        return None
    return _failed("rollup value invalid: " + json.dumps(asked.decode(errors="replace")))


def objection_in_batch(
    headers: Headers, subject: bytes, written: Collection[bytes], *, allowed: bool
) -> PublishRefusal | None:
    """``written``: the subjects of the messages of the batch before it."""
    refusal = objection(headers, allowed=allowed)
    if refusal or not written:
        return refusal
    asked = asked_rollup(headers)
    if asked == ALL:
        return _NOT_FIRST
    return _NOT_FIRST_OF_SUBJECT if asked == SUBJECT and subject in written else None
