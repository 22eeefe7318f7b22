"""What a partition of ``__transaction_state`` holds: Kafka's own keys and values. Pure.

The key is a TransactionLogKey of version 0, the value a TransactionLogValue of version 1, in which the epoch that may
ask again is a tagged field that Kafka has none for, and passes over. Version 0 is read, too. A null value is a
tombstone: the transactional id has expired. Source: ``transaction-coordinator/src/main/resources/common/message``
of Apache Kafka.
"""

import struct
from collections import defaultdict
from typing import Final

from streamlog.coordination.effects import KeptRecord
from streamlog.errors import CorruptBatch, MalformedFrame
from streamlog.transactions.transaction import (
    NO_EPOCH,
    NO_PRODUCER,
    PartitionId,
    Transaction,
    TransactionState,
)
from streamlog.wire.cursor import Cursor, encode_array_length, encode_string, encode_tags

_KEY: Final = 0
_VALUE: Final = 1
_FLEXIBLE_FROM: Final = 1
_PREVIOUS_ID: Final = 0
_NEXT_ID: Final = 1
_VERSION: Final = 2
_LAST_EPOCH: Final = 1_000
"""Not Kafka's; far from what it may come to have."""

_I16: Final = struct.Struct(">h")
_I32: Final = struct.Struct(">i")
_I64: Final = struct.Struct(">q")
_HEAD: Final = struct.Struct(">hqhib")
_TIMES: Final = struct.Struct(">qq")


def transaction_record(transactional_id: str, value: Transaction | None) -> KeptRecord:
    """``value`` None: it is to be forgotten."""
    key = _I16.pack(_KEY) + encode_string(transactional_id, False)
    return KeptRecord(key, None if value is None else _encoded(value))


BARRIER: Final = transaction_record("", None)
"""Says nothing: it is written to see that it can be. No transactional id is empty."""


def read_key(data: bytes | memoryview) -> str | None:
    """The transactional id; None for a key of a kind that is none of ours. Raises CorruptBatch."""
    try:
        cursor = Cursor(data)
        return cursor.string(False) if cursor.i16() == _KEY else None
    except MalformedFrame as error:
        raise CorruptBatch(f"a key of __transaction_state: {error}") from None


def read_transaction(data: bytes | memoryview) -> Transaction:
    """Raises CorruptBatch."""
    try:
        return _read(Cursor(data))
    except MalformedFrame as error:
        raise CorruptBatch(f"a value of __transaction_state: {error}") from None


def _read(cursor: Cursor) -> Transaction:
    version, producer_id, producer_epoch, timeout_ms, state = cursor.unpack(_HEAD)
    if not 0 <= version <= _VALUE:
        raise CorruptBatch(f"a value of __transaction_state has version {version}")
    if not TransactionState.EMPTY <= state <= TransactionState.DEAD:
        raise CorruptBatch(f"a value of __transaction_state has state {state}")
    flexible = version >= _FLEXIBLE_FROM
    partitions: set[PartitionId] = set()
    for _ in range(cursor.nullable_array_length(flexible) or 0):
        topic = cursor.string(flexible)
        partitions.update((topic, cursor.i32()) for _ in range(cursor.array_length(flexible)))
        if flexible:
            cursor.skip_tags()
    update_ms, start_ms = cursor.unpack(_TIMES)
    tags = cursor.tags() if flexible else {}
    return Transaction(
        producer_id,
        producer_epoch,
        timeout_ms,
        TransactionState(state),
        frozenset(partitions),
        update_ms,
        start_ms,
        last_epoch=tags[_LAST_EPOCH].i16() if _LAST_EPOCH in tags else NO_EPOCH,
        previous_id=tags[_PREVIOUS_ID].i64() if _PREVIOUS_ID in tags else NO_PRODUCER,
        next_id=tags[_NEXT_ID].i64() if _NEXT_ID in tags else NO_PRODUCER,
        version=tags[_VERSION].i16() if _VERSION in tags else 0,
    )


def _encoded(value: Transaction) -> bytes:
    out = bytearray(
        _HEAD.pack(_VALUE, value.producer_id, value.producer_epoch, value.timeout_ms, value.state)
    )
    out += _partitions(value)
    out += _TIMES.pack(value.update_ms, value.start_ms)
    tags = {}
    if value.previous_id != NO_PRODUCER:
        tags[_PREVIOUS_ID] = _I64.pack(value.previous_id)
    if value.next_id != NO_PRODUCER:
        tags[_NEXT_ID] = _I64.pack(value.next_id)
    if value.version:
        tags[_VERSION] = _I16.pack(value.version)
    if value.last_epoch != NO_EPOCH:
        tags[_LAST_EPOCH] = _I16.pack(value.last_epoch)
    out += encode_tags(tags)
    return bytes(out)


def _partitions(value: Transaction) -> bytes:
    """Kafka has null where no transaction was begun."""
    if value.state is TransactionState.EMPTY:
        return encode_array_length(None, True)
    topics: dict[str, list[int]] = defaultdict(list)
    for topic, number in sorted(value.partitions):
        topics[topic].append(number)
    out = bytearray(encode_array_length(len(topics), True))
    for topic, numbers in topics.items():
        out += encode_string(topic, True) + encode_array_length(len(numbers), True)
        out += b"".join(map(_I32.pack, numbers)) + encode_tags({})
    return bytes(out)
