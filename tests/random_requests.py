"""Requests at random for every API and version: as kio writes them, and with bytes changed.

A schema's fields are walked, so that an API needs nothing here when it is added to the registry.
"""

import io
from collections.abc import Callable, Sequence
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from random import Random
from types import NoneType, UnionType
from typing import Any, Final, get_args, get_origin
from uuid import UUID

from kio.index import UnknownEntity, load_request_schema
from kio.serial import entity_writer

from streamlog.metadata.commands import AlterQuota, CreateStream, DescribeCluster, encode_command
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.wire.cursor import encode_uvarint
from streamlog.wire.registry import APIS, Api
from tests.record_batches import HandRecord, hand_batch

SPOKEN: Final = [
    (api, version)
    for api in APIS.values()
    for version in range(api.version_min, api.version_max + 1)
]
NAMES: Final = (
    "flights", "ships", "nowhere", "", "not a name!", "\N{SNOWMAN}", "x" * 300, "7", "8",
    "__consumer_offsets", "retention.ms", "cleanup.policy", "subject", "delete", "-1",
    "client-id", "user", "producer_byte_rate", "group", "member", "range", "consumer",
    "PLAIN", "SCRAM-SHA-256",
)  # fmt: skip
BATCHES: Final = (
    hand_batch([HandRecord(b"a"), HandRecord(b"b")], max_timestamp_ms=1_000),
    hand_batch([HandRecord(b"c")], producer=(5, 0, 0), max_timestamp_ms=1_000),
    hand_batch([HandRecord(bytes(300))], attributes=0x10),
)
COMMANDS: Final = tuple(
    map(
        encode_command,
        (
            DescribeCluster(),
            CreateStream(config=StreamConfig.of(name="made", partitions=2)),
            AlterQuota(client_id=None, values={"request_rate": 5.0}),
        ),
    )
)
WAITS_MS: Final = (0, 0, 1, 5, -1, 30)
"""A long poll that really waits would only take time."""
WIDTHS: Final = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}
SMALL: Final = (0, 0, 1, 1, 2, 3, -1, -2, 7, 8, 100)


class RandomRequests:
    """The same ``rng`` makes the same requests."""

    def __init__(self, rng: Random, topic_ids: Sequence[UUID] = ()) -> None:
        self._rng = rng
        self._topic_ids = [None, UUID(int=1), *topic_ids]

    def body(self, api: Api, version: int) -> bytes | None:
        """As kio writes it; None where it does not know the version any more."""
        try:
            schema = load_request_schema(api.key, version)
        except UnknownEntity:
            return None
        out = io.BytesIO()
        entity_writer(schema)(out, self.value(schema))
        return out.getvalue()

    def value(self, schema: type[Any]) -> Any:
        """An instance of the schema's class."""
        values = {}
        for field in fields(schema):
            if field.metadata.get("tag") is not None and self._rng.random() < 0.5:
                continue
            kind = field.metadata.get("kafka_type")
            values[field.name] = self._of(field.type, kind)
        return schema(**values)

    def _of(self, annotation: Any, kind: str | None) -> Any:
        rng = self._rng
        if get_origin(annotation) is UnionType:
            if rng.random() < 0.3:
                return None
            (annotation,) = (arg for arg in get_args(annotation) if arg is not NoneType)
        if get_origin(annotation) is tuple:
            (inner, *_) = get_args(annotation)
            count = rng.choice((0, 1, 1, 2, 3))
            return tuple(self._of(inner, kind) for _ in range(count))
        if hasattr(annotation, "__flexible__"):
            return self.value(annotation)
        assert kind is not None
        return self._plain(kind)

    def _plain(self, kind: str) -> Any:
        rng = self._rng
        if kind in WIDTHS:
            top = 2 ** WIDTHS[kind]
            return (
                rng.choice((*SMALL, *SMALL, top - 1, -top))
                if rng.random() < 0.9
                else (rng.randrange(-top, top))
            )
        makers: dict[str, Callable[[], Any]] = {
            "uint16": lambda: rng.choice((0, 9092, 65_535)),
            "error_code": lambda: 0,
            "float64": lambda: rng.choice((0.0, 1.5, -1.0, float("inf"), float("nan"))),
            "bool": lambda: rng.random() < 0.5,
            "string": lambda: rng.choice(NAMES),
            "bytes": lambda: rng.choice((*COMMANDS, b"", rng.randbytes(rng.randrange(40)))),
            "records": lambda: rng.choice((*BATCHES, b"", rng.randbytes(rng.randrange(90)))),
            "uuid": lambda: rng.choice(self._topic_ids),
            "timedelta_i32": lambda: timedelta(milliseconds=rng.choice(WAITS_MS)),
            "timedelta_i64": lambda: timedelta(milliseconds=rng.choice(WAITS_MS)),
            "datetime_i64": lambda: datetime(2026, 1, 1, tzinfo=UTC),
        }
        return makers[kind]()

    def changed(self, body: bytes) -> bytes:
        """One to three bytes, lengths or stretches are other ones."""
        for _ in range(self._rng.randint(1, 3)):
            body = self._rng.choice(CHANGES)(self._rng, body)
        return body

    def swollen(self, body: bytes, size: int) -> bytes:
        """From some place on an array that is as long as it claims, of almost nothing each."""
        at = self._rng.randrange(len(body) + 1)
        count = self._rng.choice((size, size // 2, size // 4, size // 18))
        length = self._rng.choice((encode_uvarint(count + 1), count.to_bytes(4, "big")))
        filling = self._rng.choice((b"\x00", b"\x01", b"\x00\x01"))
        return body[:at] + length + (filling * size)[:size]


def _flipped(rng: Random, body: bytes) -> bytes:
    at = rng.randrange(len(body) + 1)
    return (
        body[:at]
        + bytes(byte ^ (1 << rng.randrange(8)) for byte in body[at : at + 1])
        + (body[at + 1 :])
    )


def _overwritten(rng: Random, body: bytes) -> bytes:
    """Small and extreme numbers: what lengths and counts are made of."""
    at = rng.randrange(len(body) + 1)
    new = rng.choice(
        (b"\x7f\xff\xff\xff", b"\xff" * 4, b"\x80\x00\x00\x00", b"\xff\xff\xff\xff\x0f",
         b"\x00", b"\x01", b"\x02", b"\xff", b"\x00\x00", b"\x7f\xff", b"\x80\x80\x80\x80\x80")
    )  # fmt: skip
    return body[:at] + new + body[at + len(new) :]


def _cut(rng: Random, body: bytes) -> bytes:
    return body[: rng.randrange(len(body) + 1)]


def _longer(rng: Random, body: bytes) -> bytes:
    at = rng.randrange(len(body) + 1)
    return body[:at] + rng.randbytes(rng.randrange(1, 12)) + body[at:]


def _repeated(rng: Random, body: bytes) -> bytes:
    start, end = sorted((rng.randrange(len(body) + 1), rng.randrange(len(body) + 1)))
    return body[:end] + body[start:end] * rng.randint(1, 3) + body[end:]


def _without(rng: Random, body: bytes) -> bytes:
    start = rng.randrange(len(body) + 1)
    return body[:start] + body[start + rng.randrange(1, 8) :]


CHANGES: Final[tuple[Callable[[Random, bytes], bytes], ...]] = (
    _flipped, _flipped, _overwritten, _overwritten, _cut, _longer, _repeated, _without,
)  # fmt: skip
