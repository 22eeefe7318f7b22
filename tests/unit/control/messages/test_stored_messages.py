from typing import Any

import pytest

from streamlog.control.messages import stored_messages
from streamlog.control.messages.stored_messages import (
    find_message,
    last_message,
    last_of_many,
    message_at,
    next_message,
    stored_message,
)
from streamlog.errors import MessageNotFound
from streamlog.jetstream.direct_get.direct_query import message_query
from streamlog.jetstream.errors import ApiRefused
from streamlog.jetstream.requests.request_schemas import MESSAGE
from streamlog.jetstream.requests.schema import WrongType
from streamlog.jetstream.verbs.messages import message_json
from streamlog.record.codec import Record
from streamlog.record.compression import Compression
from tests.readable_partition import TIME_MS, FakePartition
from tests.unit.control.messages.watched_index import WatchedPartition


@pytest.fixture(params=[Compression.NONE, Compression.ZSTD])
def partition(request: pytest.FixtureRequest) -> FakePartition:
    return FakePartition([["a.1", "b.1", "a.2"], ["b.2"], ["a.1", "c"]], request.param)


async def test_by_sequence(partition: FakePartition) -> None:
    found = await message_at(partition, 5)  # type: ignore[arg-type]
    assert (found.subject, found.sequence, found.data) == ("a.1", 5, b"of a.1")
    assert found.timestamp_ms == TIME_MS + 4
    for sequence in (0, 7, 10**12):
        with pytest.raises(MessageNotFound):
            await message_at(partition, sequence)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("pattern", "sequence"), [("a.1", 5), ("b.*", 4), ("a.>", 5), ("a.2", 3), (">", 6), ("d", None)]
)
async def test_the_last(partition: FakePartition, pattern: str, sequence: int | None) -> None:
    if sequence is None:
        with pytest.raises(MessageNotFound):
            await last_message(partition, pattern)  # type: ignore[arg-type]
    else:
        assert (await last_message(partition, pattern)).sequence == sequence  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("pattern", "start", "sequence"),
    [("a.1", 0, 1), ("a.1", 2, 5), ("a.*", 2, 3), ("b.1", 3, None), ("c", 0, 6), ("a.1", 99, None)],
)
async def test_the_next(
    partition: FakePartition, pattern: str, start: int, sequence: int | None
) -> None:
    if sequence is None:
        with pytest.raises(MessageNotFound):
            await next_message(partition, pattern, start)  # type: ignore[arg-type]
    else:
        found = await next_message(partition, pattern, start)  # type: ignore[arg-type]
        assert found.sequence == sequence


async def test_what_is_purged_is_not_found(partition: FakePartition) -> None:
    partition.log_start_offset = 2
    partition.subjects.index.forget_below(2)
    with pytest.raises(MessageNotFound):
        await message_at(partition, 2)  # type: ignore[arg-type]
    with pytest.raises(MessageNotFound):
        await last_message(partition, "b.1")  # type: ignore[arg-type]
    assert (await next_message(partition, "a.*", 0)).sequence == 3  # type: ignore[arg-type]


async def test_what_is_not_committed_is_not_found(partition: FakePartition) -> None:
    partition.high_watermark = 4
    assert (await last_message(partition, "a.1")).sequence == 1  # type: ignore[arg-type]
    with pytest.raises(MessageNotFound):
        await last_message(partition, "c")  # type: ignore[arg-type]
    with pytest.raises(MessageNotFound):
        await next_message(partition, "a.1", 2)  # type: ignore[arg-type]


async def test_a_lookup_reads_one_batch(partition: FakePartition) -> None:
    await last_message(partition, "b.*")  # type: ignore[arg-type]
    await next_message(partition, "a.2", 0)  # type: ignore[arg-type]
    assert partition.reads == 2


@pytest.mark.parametrize("pattern", ["a.*", "a.1"])
async def test_what_has_gone_when_it_is_read_is_looked_for_again(
    partition: FakePartition, pattern: str
) -> None:
    """An erasure is known before the index has heard of it."""
    partition.erased.add(4)
    assert (await last_message(partition, pattern)).sequence == (3 if "*" in pattern else 1)  # type: ignore[arg-type]
    partition.erased.add(0)
    if "*" in pattern:
        assert (await next_message(partition, pattern, 0)).sequence == 3  # type: ignore[arg-type]
    partition.erased.add(2)
    with pytest.raises(MessageNotFound):
        await last_message(partition, pattern)  # type: ignore[arg-type]
    with pytest.raises(MessageNotFound):
        await next_message(partition, pattern, 0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "sequence"),
    [
        ({"start_time": "2023-11-14T22:13:20Z"}, 1),
        ({"start_time": "2023-11-14T22:13:20.003Z"}, 4),
        ({"start_time": "2023-11-14T22:13:20.003000001Z"}, 5),
        ({"start_time": "2023-11-14T23:13:20.003+01:00"}, 4),
        ({"start_time": "2023-11-14T22:13:20.001Z", "next_by_subj": "a.*"}, 5),
        ({"start_time": "2023-11-14T22:13:21Z"}, None),
        ({"seq": 2}, 2),
        ({"next_by_subj": "b.2"}, 4),
    ],
)
async def test_from_a_time_on(
    partition: FakePartition, fields: dict[str, Any], sequence: int | None
) -> None:
    query = message_query(MESSAGE.read(fields))
    if sequence is None:
        with pytest.raises(MessageNotFound):
            await find_message(partition, query)  # type: ignore[arg-type]
    else:
        found = await find_message(partition, query)  # type: ignore[arg-type]
        assert found.sequence == sequence


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"seq": 1, "last_by_subj": "a"},
        {"seq": 1, "start_time": "2023-11-14T22:13:20Z"},
        {"last_by_subj": "a", "start_time": "2023-11-14T22:13:20Z"},
        {"last_by_subj": "a", "next_by_subj": "b"},
        {"start_time": "yesterday"},
        {"start_time": "2023-11-14T22:13:20"},
        {"start_time": 5},
    ],
)
def test_queries_that_are_none(fields: dict[str, Any]) -> None:
    with pytest.raises((ApiRefused, WrongType)):
        message_query(MESSAGE.read(fields))


async def test_the_last_of_many(partition: FakePartition) -> None:
    async def of(*patterns: str, up_to: int | None = None, limit: int = 10) -> list[int] | None:
        return await last_of_many(partition, patterns, up_to_sequence=up_to, limit=limit)  # type: ignore[arg-type]

    assert await of("a.*", "c") == [3, 5, 6]
    assert await of("a.1", "a.*") == [3, 5]
    assert await of(">", up_to=4) == [1, 2, 3, 4]
    assert await of("b.*", limit=1) is None
    assert await of("nothing") == []


async def test_many_patterns_over_many_subjects_hold_up_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each turn of the event loop compares a few, and looks through a few offsets."""
    monkeypatch.setattr(stored_messages, "LOOKS_AT_ONCE", 50)
    monkeypatch.setattr(stored_messages, "LOOKED_AT_ONCE", 40)
    partition: Any = WatchedPartition()
    wild = ["x.*", *(f"*.{number}" for number in range(9))]
    found = await last_of_many(partition, wild, up_to_sequence=150, limit=1_000)
    assert found == list(range(51, 151))
    assert len(partition.first.compared) == 1, "it was made anew, and is asked no more"
    assert max(partition.watched.compared) <= 50
    assert max(partition.watched.looked) <= 40
    assert partition.turns >= 20


async def test_who_looks_for_the_last_of_all_subjects_is_told_soon_that_they_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stored_messages, "LOOKS_AT_ONCE", 10)
    partition: Any = WatchedPartition()
    assert await last_of_many(partition, [">"], limit=25) is None
    assert sum(partition.watched.compared) <= 40
    monkeypatch.setattr(stored_messages, "LOOKED_FOR_MAX", 25)
    before = sum(partition.watched.compared)
    assert await last_of_many(partition, [">"], up_to_sequence=100, limit=25) is None
    assert sum(partition.watched.compared) <= before + 40
    assert max(partition.watched.looked) == 0


async def test_too_many_patterns_are_refused() -> None:
    partition: Any = WatchedPartition()
    many = [f"x.{number}" for number in range(stored_messages.PATTERNS_MAX)]
    assert await last_of_many(partition, many, limit=1_000) == list(range(201, 301))
    assert partition.watched.compared == [], "names without wildcards are compared with nothing"
    assert await last_of_many(partition, [*many, "y"], limit=1_000) is None
    wild = [f"*.{number}" for number in range(stored_messages.WILD_PATTERNS_MAX)]
    assert await last_of_many(partition, wild, limit=1_000) == list(range(201, 301))
    assert await last_of_many(partition, [*wild, ">"], limit=1_000) is None


def test_a_record_as_a_message() -> None:
    headers = (("subject", b"s"), ("reply", b"r"), ("X", b"1"), ("X", b"2"), ("empty", None))
    found = stored_message(Record(6, TIME_MS, None, b"v", headers))
    assert found.header_block == b"NATS/1.0\r\nX: 1\r\nX: 2\r\nempty: \r\n\r\n"
    assert message_json(found) == {
        "subject": "s",
        "seq": 7,
        "time": "2023-11-14T22:13:20.000Z",
        "data": "dg==",
        "hdrs": "TkFUUy8xLjANClg6IDENClg6IDINCmVtcHR5OiANCg0K",
    }


def test_a_record_that_was_no_message() -> None:
    found = stored_message(Record(0, TIME_MS, b"k", None, ()))
    assert (found.subject, found.header_block, found.data) == ("", b"", b"")
    assert set(message_json(found)) == {"subject", "seq", "time"}


def test_a_header_of_a_record_begins_no_other_header() -> None:
    """Kafka's producers, and envelopes, may have any bytes in a header."""
    hostile = b"x\r\nNats-Sequence: 9\r\n\r\nbody"
    headers = (
        ("subject", b"s" + hostile),
        ("a", hostile),
        ("b\r\nNats-Rollup", b"all"),
        ("c", None),
    )
    found = stored_message(Record(0, 1, None, b"value", headers))
    assert found.subject == "sx  Nats-Sequence: 9    body"
    lines = found.header_block.split(b"\r\n")
    assert lines == [
        b"NATS/1.0", b"a: x  Nats-Sequence: 9    body", b"b  Nats-Rollup: all", b"c: ", b"", b"",
    ]  # fmt: skip
    assert b"\n" not in found.header_block.replace(b"\r\n", b"")
