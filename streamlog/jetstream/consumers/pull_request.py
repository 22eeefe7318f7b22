"""CONSUMER.MSG.NEXT: what a pull request asks for, and the statuses that refuse one. Pure.

A body is empty (one message), a number (so many), or JSON. nats-server reads the JSON less strictly than that
of its API: unknown fields are ignored. Whatever depends on the requests that wait already, on the messages
that there are, or on the pinned client, is decided where these are known.
"""

import re
from typing import Final, NamedTuple

from streamlog.jetstream.consumers.consumer_config import ConsumerConfig
from streamlog.jetstream.consumers.go_duration import MS, go_text, ms_of
from streamlog.jetstream.errors import ApiRefused, invalid_json
from streamlog.jetstream.requests.fields import Fields
from streamlog.jetstream.requests.request_schemas import PULL
from streamlog.jetstream.requests.schema import INT64_MAX, WrongType, read_json

PRIORITY_MAX: Final = 9
_NUMBER: Final = re.compile(rb"[+-]?[0-9]{1,60}")


class PullRequest(NamedTuple):
    """What the client asks for; 0 and empty where it leaves a field out."""

    batch: int = 1
    """At least 1."""
    max_bytes: int = 0
    expires_ms: int = 0
    """0: never. A negative one, which is over already, is 1."""
    no_wait: bool = False
    idle_heartbeat_ms: int = 0
    group: str = ""
    """Empty also for a number instead of JSON, which nats-server takes even where groups are needed."""
    min_pending: int = 0
    min_ack_pending: int = 0
    id: str = ""
    """Of the pin."""
    priority: int = 0


class PullRefused(Exception):
    """The request is answered by this status."""

    def __init__(self, code: int, description: str) -> None:
        super().__init__(f"{code} {description}")
        self.code, self.description = code, description


def read_pull(body: bytes, config: ConsumerConfig) -> PullRequest:
    """Raises PullRefused."""
    if config.is_push:
        raise PullRefused(409, "Consumer is push based")
    text = body.strip()
    if not text.startswith(b"{"):
        batch = _number(text)
        _check_batch(batch, config)
        return PullRequest(max(batch, 1))
    fields = _read_fields(text)
    expires_ns, heartbeat_ns = fields.get("expires", 0), fields.get("idle_heartbeat", 0)
    if heartbeat_ns > 0 and 2 * heartbeat_ns > expires_ns:
        raise _bad("heartbeat value too large")
    batch, max_bytes = fields.get("batch", 0), fields.get("max_bytes", 0)
    _check_batch(batch, config)
    if config.max_expires_ms and expires_ns > config.max_expires_ms * MS:
        longest = go_text(config.max_expires_ms)
        raise PullRefused(409, f"Exceeded MaxRequestExpires of {longest}")
    if config.max_bytes and max_bytes > config.max_bytes:
        raise PullRefused(409, f"Exceeded MaxRequestMaxBytes of {config.max_bytes}")
    _check_priority(fields, config)
    return PullRequest(
        batch=max(batch, 1),
        max_bytes=max(max_bytes, 0),
        expires_ms=max(ms_of(expires_ns), 1) if expires_ns else 0,
        no_wait=fields.get("no_wait", False),
        idle_heartbeat_ms=max(ms_of(heartbeat_ns), 0),
        group=fields.get("group", ""),
        min_pending=max(fields.get("min_pending", 0), 0),
        min_ack_pending=max(fields.get("min_ack_pending", 0), 0),
        id=fields.get("id", ""),
        priority=fields.get("priority", 0),
    )


def _number(text: bytes) -> int:
    """1 for what is none."""
    number = int(text) if _NUMBER.fullmatch(text) else 1
    return number if -INT64_MAX - 1 <= number <= INT64_MAX else 1


def _read_fields(text: bytes) -> Fields:
    try:
        return PULL.read(read_json(text), strict=False)
    except ApiRefused as refused:
        raise _bad(refused.error.description) from None
    except WrongType as error:
        raise _bad(invalid_json(str(error)).description) from None


def _check_batch(batch: int, config: ConsumerConfig) -> None:
    if config.max_batch and batch > config.max_batch:
        raise PullRefused(409, f"Exceeded MaxRequestBatch of {config.max_batch}")


def _check_priority(fields: Fields, config: ConsumerConfig) -> None:
    policy = config.priority_policy
    if (fields.get("min_pending") or fields.get("min_ack_pending")) and policy != "overflow":
        raise _bad("Not a Overflow Priority consumer")
    if fields.get("id") and policy != "pinned_client":
        raise _bad("Not a Pinned Client Priority consumer")
    if not 0 <= fields.get("priority", 0) <= PRIORITY_MAX:
        raise _bad(f"Priority must be between 0 and {PRIORITY_MAX}")
    if policy != "none":
        if not fields.get("group"):
            raise _bad("Priority Group missing")
        if fields["group"] not in config.priority_groups:
            raise _bad("Invalid Priority Group")


def _bad(why: str) -> PullRefused:
    return PullRefused(400, f"Bad Request - {why}")
