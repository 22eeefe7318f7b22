"""A message that a person publishes: what it may be, its batch, and the wait for its commit."""

import asyncio
import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from streamlog.errors import (
    InvalidRecord,
    InvalidRequest,
    InvalidSubject,
    RecordTooLarge,
    RequestTimedOut,
    StorageFailed,
    StreamlogError,
)
from streamlog.log.segment.append_validation import check_batch_size
from streamlog.metadata.stream.setting_type import NO_LIMIT
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.metadata.stream.subjects import check_subject, overlap
from streamlog.metadata.stream.write_state import check_takes_records
from streamlog.partition.partition import Partition
from streamlog.record.codec import RecordRun
from streamlog.record.compiled.keys import murmur2
from streamlog.record.produced import ProducedBatch, check_inside, check_outside

PUBLISHED_BYTES_MAX: Final = 180 * 1024
"""Of key, headers and payload together: with base64 around them they fit in a request of HTTP."""
PUBLISHED_HEADERS_MAX: Final = 100
COMMIT_TIMEOUT_S: Final = 1.5
"""Less than a node waits for another one's answer."""
SUBJECT_HEADER: Final = "subject"
_OWN_HEADERS: Final = (SUBJECT_HEADER, "reply")
_POSITIVE: Final = 0x7FFFFFFF
"""Kafka's partitioner takes the hash without its highest bit."""

Encoding = Literal["text", "base64"]


@dataclass(frozen=True, slots=True)
class MessageHeader:
    """One header of a message."""

    name: str
    value: str = ""


def payload_of(text: str, encoding: Encoding) -> bytes:
    """Raises InvalidRequest, RecordTooLarge."""
    if len(text) > 2 * PUBLISHED_BYTES_MAX:
        raise RecordTooLarge(f"a message may have {PUBLISHED_BYTES_MAX} bytes here")
    if encoding == "text":
        return encoded("payload", text)
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidRequest("payload: is not base64") from None


def encoded(what: str, text: str) -> bytes:
    """UTF-8. JSON may have halves of characters, which have none. Raises InvalidRequest."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidRequest(f"{what}: has characters that UTF-8 does not have") from None


def subject_of(config: StreamConfig, partition: int, subject: str | None) -> str | None:
    """``subject``, if the partition's messages come by it; else the first one without wildcards. None where
    there are only others: the record has no subject then, as those of most Kafka producers. Raises
    InvalidSubject.
    """
    heard = config.subjects_of(partition)
    if subject is None:
        return next((it for it in heard if _is_literal(it)), None)
    check_subject(subject)
    if not _is_literal(subject):
        raise InvalidSubject("subject: a message is not published on a wildcard")
    if not any(overlap(it, subject) for it in heard):
        raise InvalidSubject(f"subject: {config.name}/{partition} has no subject that matches it")
    return subject


def _is_literal(subject: str) -> bool:
    return not {"*", ">"} & set(subject.split("."))


def partition_of(key: bytes | None, partitions: int) -> int:
    """As Kafka's default partitioner chooses it; the first one for a record without a key."""
    return 0 if key is None else (murmur2(key) & _POSITIVE) % partitions


def batch_of(
    *,
    subject: str | None,
    key: bytes | None,
    headers: Sequence[MessageHeader],
    payload: bytes | None,
    now_ms: int,
) -> bytes:
    """One record as a Kafka producer sends it. Raises InvalidRequest, RecordTooLarge."""
    if len(headers) > PUBLISHED_HEADERS_MAX:
        raise InvalidRequest(f"headers: {PUBLISHED_HEADERS_MAX} at most")
    pairs = [(encoded("headers", it.name), encoded("headers", it.value)) for it in headers]
    for it in headers:
        if not it.name or it.name in _OWN_HEADERS:
            raise InvalidRequest("headers: a name that is empty, 'subject' or 'reply' is not taken")
    if subject is not None:
        pairs.insert(0, (SUBJECT_HEADER.encode(), subject.encode()))
    size_bytes = sum(len(name) + len(value) for name, value in pairs)
    size_bytes += len(key or b"") + len(payload or b"")
    if size_bytes > PUBLISHED_BYTES_MAX:
        raise RecordTooLarge(f"{size_bytes} bytes; a message may have {PUBLISHED_BYTES_MAX} here")
    run = RecordRun()
    run.append(key, payload, pairs)
    return run.seal(base_offset=0, leader_epoch=-1, timestamp_ms=now_ms, max_timestamp_ms=now_ms)


async def publish(partition: Partition, records: bytes, *, node_bytes_max: int) -> int:
    """Append the batch as Produce with acks=all does; its offset, once it is committed.

    Raises StreamStandsStill, InvalidRecord, RecordTooLarge, NotEnoughReplicas, StreamFull, ... where
    nothing was stored; RequestTimedOut, StorageFailed where that is not known.
    """
    check_takes_records(partition.config)
    batch = _checked(partition.config, records, node_bytes_max)
    partition.check_min_isr()
    commit = _Commit()
    partition.produce(batch, commit)
    try:
        async with asyncio.timeout(COMMIT_TIMEOUT_S):
            return await commit.offset
    except TimeoutError:
        raise RequestTimedOut("not committed in the time allowed; it may yet be") from None


def _checked(config: StreamConfig, records: bytes, node_bytes_max: int) -> ProducedBatch:
    batch = check_inside(check_outside(records), records, keyed=config.is_compacted)
    if batch.record_count != 1 or batch.is_sequenced:
        raise InvalidRecord("one record without a producer's id is published at once")
    limit = config.message_bytes_max
    check_batch_size(
        batch.header.size_bytes,
        batch.largest_bytes,
        stream_max=None if limit == NO_LIMIT else limit,
        node_max=node_bytes_max,
    )
    return batch


class _Commit:
    """An ``Acknowledgement``. Whatever fails after the append leaves in doubt whether it is stored: no
    error may look as if it could be tried again.
    """

    def __init__(self) -> None:
        self.offset: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def committed(self, base_offset: int) -> None:
        if not self.offset.done():
            self.offset.set_result(base_offset)

    def failed(self, error: StreamlogError) -> None:
        if not self.offset.done():
            unsure = isinstance(error, StorageFailed | RequestTimedOut)
            text = f"{error}; whether it is stored is not known"
            self.offset.set_exception(error if unsure else RequestTimedOut(text))
