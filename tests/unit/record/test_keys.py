from collections.abc import Callable
from typing import Any

import pytest

from streamlog.errors import CorruptBatch
from streamlog.record.compiled import keys as compiled
from tests.oracles import keys as oracle
from tests.record_batches import HandRecord, record_bytes, varint

TWINS: list[Any] = [
    pytest.param(oracle, id="plain"),
    pytest.param(compiled, id="compiled"),
]

SEED = bytes(range(16))


@pytest.fixture(params=TWINS)
def twin(request: pytest.FixtureRequest) -> Any:
    return request.param


def body_of(*records: HandRecord) -> bytes:
    return b"".join(record_bytes(record, at) for at, record in enumerate(records))


def record(key: bytes | None, value: bytes | None = b"v", **more: Any) -> HandRecord:
    return HandRecord(value, key, **more)


def test_only_the_last_record_of_a_key_stays(twin: Any) -> None:
    keys = twin.KeyOffsets(10, SEED)
    records = [record(b"a"), record(b"b"), record(b"a"), record(b""), record(b"")]
    body = body_of(*records)
    assert keys.note(body, 5, 100, 0) == -1
    assert len(keys) == 3
    left = keys.sift(body, 5, 100, 1_000)
    assert left == (b"".join(record_bytes(records[at], at) for at in (1, 2, 4)), 3, 0)
    older = body_of(record(b"b"), record(b"c"))
    assert keys.sift(older, 2, 0, 1_000) == (record_bytes(record(b"c"), 1), 1, 0)


def test_what_is_all_to_stay_is_not_copied(twin: Any) -> None:
    keys = twin.KeyOffsets(10, SEED)
    body = body_of(record(b"a"), record(b"b", None))
    keys.note(body, 2, 0, 0)
    assert keys.sift(body, 2, 0, 10) == (None, 2, 1)
    assert keys.sift(b"", 0, 0, 10) == (None, 0, 0)


def test_records_without_a_key_and_those_above_the_bound_stay(twin: Any) -> None:
    keys = twin.KeyOffsets(10, SEED)
    body = body_of(record(None), record(b"a"), record(None, None), record(b"a"), record(b"a"))
    keys.note(body, 5, 0, 0)
    assert keys.sift(body, 5, 0, 10).kept == 3
    assert keys.sift(body, 5, 0, 3).kept == 4
    assert keys.sift(body, 5, 0, 10, drop_tombstones=True).kept == 3
    assert twin.keyless_of(body, 5, 10) == (2, [0, 2])
    assert twin.keyless_of(body, 5, 1) == (2, [0])
    assert twin.keyless_of(body_of(record(b""), record(None)), 2, 10) == (1, [1])
    assert twin.keyless_of(body_of(record(b"a")), 1, 10) == (0, [])


def test_tombstones_are_dropped_when_asked_to(twin: Any) -> None:
    keys = twin.KeyOffsets(10, SEED)
    body = body_of(record(b"a"), record(b"a", None), record(b"b", b""))
    keys.note(body, 3, 0, 0)
    assert keys.sift(body, 3, 0, 10)[1:] == (2, 1)
    assert keys.sift(body, 3, 0, 10, drop_tombstones=True)[1:] == (1, 0)
    assert keys.sift(body, 3, 0, 1, drop_tombstones=True)[1:] == (2, 1)


def test_a_full_table_says_where_to_go_on(twin: Any) -> None:
    keys = twin.KeyOffsets(2, SEED)
    body = body_of(*(record(key) for key in (b"a", b"b", b"a", b"c", b"a")))
    assert keys.note(body, 5, 50, 0) == 53
    assert keys.sift(body, 5, 50, 53).kept == 4
    again = twin.KeyOffsets(2, SEED)
    assert again.note(body, 5, 50, 53) == -1
    assert len(again) == 2


def test_many_keys_are_told_apart(twin: Any) -> None:
    keys = twin.KeyOffsets(2_000, SEED)
    for at in range(2_000):
        assert keys.note(body_of(record(b"%d" % at * (at % 40))), 1, at, 0) == -1
    assert len(keys) == 2_000 - 50 + 1  # every fortieth is empty
    for at in range(2_000):
        body = body_of(record(b"%d" % at * (at % 40)))
        assert keys.sift(body, 1, at, 10_000).kept == (at % 40 != 0 or at == 1_960)


def test_times_are_shifted_and_all_else_stays(twin: Any) -> None:
    keys = twin.KeyOffsets(1, SEED)
    headers = [(b"h", b"x"), (b"n", None)]
    deltas = [0, 5, -70, 2**62, -(2**63)]
    records = [record(b"k", headers=headers, timestamp_delta=delta) for delta in deltas]
    shift_ms = -1_000_000
    wanted = [max(delta + shift_ms, -(2**63)) for delta in deltas]
    moved = [record(b"k", headers=headers, timestamp_delta=delta) for delta in wanted]
    left = keys.sift(body_of(*records), 5, 0, 0, shift_ms=shift_ms)
    assert left == (body_of(*moved), 5, 0)
    up = keys.sift(body_of(record(b"k", timestamp_delta=2**63 - 2)), 1, 0, 0, shift_ms=5)
    assert up.body == body_of(record(b"k", timestamp_delta=2**63 - 1))


@pytest.mark.parametrize(
    ("body", "count"),
    [
        (b"", 1),
        (b"\x00", 1),
        (varint(-5), 1),
        (varint(50) + bytes(3), 1),
        (body_of(record(b"a"))[:-4], 1),
        (body_of(record(b"a")) + b"x", 1),
        (body_of(record(b"a")), 2),
        (varint(5) + bytes(3) + varint(9) + b"x", 1),
        (varint(4) + bytes(3) + varint(-2), 1),
        (b"\xff" * 12, 1),
        (varint(3) + bytes(2) + b"\x80", 1),
    ],
)
def test_what_is_no_record_is_corrupt(twin: Any, body: bytes, count: int) -> None:
    keys = twin.KeyOffsets(10, SEED)
    looks: list[Callable[[], Any]] = [
        lambda: keys.note(body, count, 0, 0),
        lambda: keys.sift(body, count, 0, 10),
        lambda: keys.sift(body, count, 0, 10, shift_ms=3),
        lambda: twin.keyless_of(body, count, 3),
    ]
    for look in looks:
        with pytest.raises(CorruptBatch):
            look()


@pytest.mark.parametrize(("keys_max", "seed"), [(0, SEED), (-1, SEED), (5, b"short")])
def test_tables_that_cannot_be(twin: Any, keys_max: int, seed: bytes) -> None:
    with pytest.raises(ValueError, match="cannot be"):
        twin.KeyOffsets(keys_max, seed)


def test_siphash_is_the_published_one() -> None:
    """So that nobody can make two keys that pass for one without knowing the seed."""
    # The first and some later of the 64 vectors that come with SipHash, key 00 01 .. 0f.
    vectors = {
        0: "a3817f04ba25a8e66df67214c7550293",
        1: "da87c1d86b99af44347659119b22fc45",
        8: "3b62a9ba6258f5610f83e264f31497b4",
    }
    for size, expected in vectors.items():
        assert compiled.digest(bytes(range(size)), SEED).hex() == expected
