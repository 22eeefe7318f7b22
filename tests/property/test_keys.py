"""The compiled table of keys is equal to its oracle in plain Python, and both to a naive one."""

from array import array
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from streamlog.errors import CorruptBatch
from streamlog.record.compiled import keys as compiled
from tests.oracles import keys as oracle
from tests.record_batches import HandRecord, record_bytes

SEED = b"sixteen bytes.. "
texts = st.one_of(st.none(), st.binary(max_size=3))
records = st.lists(
    st.builds(
        HandRecord,
        value=texts,
        key=texts,
        headers=st.lists(st.tuples(st.binary(max_size=3), texts), max_size=2),
        offset_delta=st.none(),
        timestamp_delta=st.integers(-(2**40), 2**40),
    ),
    max_size=12,
)


def outcome(call: Any) -> Any:
    try:
        return call()
    except CorruptBatch:
        return CorruptBatch


@settings(max_examples=300, deadline=None)
@given(
    noted=records, sifted=records, keys_max=st.integers(1, 6), upper=st.integers(0, 40),
    from_offset=st.integers(0, 30), drop=st.booleans(), shift_ms=st.integers(-(2**50), 2**50),
)  # fmt: skip
def test_twins_are_equal(
    noted: list[HandRecord], sifted: list[HandRecord], keys_max: int, upper: int,
    from_offset: int, drop: bool, shift_ms: int,
) -> None:  # fmt: skip
    told = []
    for twin in (oracle, compiled):
        table = twin.KeyOffsets(keys_max, SEED)
        body = b"".join(record_bytes(it, at) for at, it in enumerate(noted))
        full = table.note(body, len(noted), 20, from_offset)
        body = b"".join(record_bytes(it, at) for at, it in enumerate(sifted))
        left = table.sift(body, len(sifted), 15, upper, drop_tombstones=drop, shift_ms=shift_ms)
        places = [twin.place_of(body, len(sifted), delta) for delta in range(15)]
        marks = [twin.marks_of(body, len(sifted), step) for step in (1, 2, 8)]
        told.append((full, len(table), left, twin.keyless_of(body, len(sifted), 2), places, marks))
    assert told[0] == told[1]


@settings(max_examples=500, deadline=None)
@given(body=st.binary(max_size=40), count=st.integers(0, 4), shift_ms=st.sampled_from([0, 7]))
def test_twins_are_equal_on_anything(body: bytes, count: int, shift_ms: int) -> None:
    told = []
    for twin in (oracle, compiled):
        table = twin.KeyOffsets(5, SEED)
        told.append(
            [
                outcome(lambda table=table: table.note(body, count, 0, 0)),
                outcome(lambda table=table: table.sift(body, count, 0, 9, shift_ms=shift_ms)),
                outcome(lambda twin=twin: twin.keyless_of(body, count, 2)),
                outcome(lambda twin=twin: twin.place_of(body, count, 1)),
                outcome(lambda twin=twin: twin.marks_of(body, count, 1)),
                outcome(lambda twin=twin: twin.without(body, count, b"\x05\x01")),
            ]
        )
    assert told[0] == told[1]


@settings(max_examples=200, deadline=None)
@given(made=records, gap=st.none() | st.integers(0, 12), step=st.integers(1, 5))
def test_marks_of_dense_records(made: list[HandRecord], gap: int | None, step: int) -> None:
    parts = [record_bytes(it, at + (gap is not None and at >= gap)) for at, it in enumerate(made)]
    starts = [sum(map(len, parts[:at])) for at in range(len(parts) + 1)]
    marks = compiled.marks_of(b"".join(parts), len(parts), step)
    if not parts or (gap is not None and gap < len(parts)):
        assert marks is None
    else:
        assert marks is not None
        assert list(array("I", marks)) == [*starts[:-1][::step], starts[-1]]


@settings(max_examples=200, deadline=None)
@given(made=records, erased=st.sets(st.integers(0, 30)))
def test_without_some_offsets(made: list[HandRecord], erased: set[int]) -> None:
    parts = [record_bytes(it, at) for at, it in enumerate(made)]
    bits = sum(1 << at for at in erased).to_bytes(4, "little").rstrip(b"\0")
    left = [at for at in range(len(made)) if at not in erased]
    wanted = None if len(left) == len(made) else b"".join(parts[at] for at in left)
    tombstones = sum(made[at].key is not None and made[at].value is None for at in left)
    for twin in (oracle, compiled):
        found = twin.without(b"".join(parts), len(made), bits)
        assert tuple(found) == (wanted, len(left), tombstones)


@settings(max_examples=200, deadline=None)
@given(keys=st.lists(st.binary(max_size=2), max_size=30))
def test_the_last_offset_of_each_key(keys: list[bytes]) -> None:
    table = compiled.KeyOffsets(50, SEED)
    body = b"".join(record_bytes(HandRecord(b"v", key), at) for at, key in enumerate(keys))
    table.note(body, len(keys), 0, 0)
    last = {key: at for at, key in enumerate(keys)}
    wanted = [at for at, key in enumerate(keys) if last[key] == at]
    left = table.sift(body, len(keys), 0, len(keys))
    assert left.kept == len(wanted) == len(table)
    whole = b"".join(record_bytes(HandRecord(b"v", keys[at]), at) for at in wanted)
    assert (body if left.body is None else left.body) == whole
