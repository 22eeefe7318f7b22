"""Sets of offsets against Python's own sets."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlog.record.offset_set import CHUNK, OffsetSet

# Around the ends of chunks, and in long runs.
offsets = st.one_of(
    st.integers(0, 40),
    st.integers(CHUNK - 20, CHUNK + 20),
    st.integers(3 * CHUNK - 3, 3 * CHUNK + 3),
    st.sampled_from([2**40, 2**62]),
)
sets = st.builds(
    lambda some, runs: some | {at for start, size in runs for at in range(start, start + size)},
    st.sets(offsets, max_size=40),
    st.lists(st.tuples(offsets, st.integers(0, 30)), max_size=4),
)


def made(naive: set[int]) -> OffsetSet:
    return OffsetSet(sorted(naive))


@settings(deadline=None)
@given(sets, sets, offsets, offsets)
def test_as_a_set(one: set[int], other: set[int], a: int, b: int) -> None:
    start, end = sorted((a, b))
    found = made(one)
    assert (list(found), len(found), bool(found)) == (sorted(one), len(one), bool(one))
    assert found == made(one)
    assert found != made(one | {a}) or a in one
    inside = {it for it in one if start <= it < end}
    assert set(found.between(start, end)) == inside
    assert found.count(start, end) == len(inside)
    assert all((it in found) == (it in one) for it in one | other | {a, b})
    united, left = found.copy(), found.copy()
    united.update(made(other))
    left.remove_all(made(other))
    common = found.copy()
    common.keep_all(made(other))
    assert set(common) == one & other
    assert (set(united), set(left), set(found)) == (one | other, one - other, one)
    united.keep_between(start, end)
    assert set(united) == {it for it in one | other if start <= it < end}


@settings(deadline=None)
@given(sets, st.integers(0, 2 * CHUNK + 9), st.integers(0, 2 * CHUNK))
def test_made_at_once(naive: set[int], start: int, size: int) -> None:
    assert OffsetSet.in_order(sorted(naive)) == made(naive)
    run = OffsetSet.between_ends(start, start + size)
    assert list(run) == list(range(start, start + size))
    assert OffsetSet.decode(run.encode()) == run
    run.update(made(naive))
    assert OffsetSet.decode(run.encode()) == run


@settings(deadline=None)
@given(sets, offsets, st.integers(0, 100), st.integers(0, 60))
def test_what_is_absent(naive: set[int], start: int, size: int, count: int) -> None:
    found, end = made(naive), start + size
    first = next(it for it in range(start, start + 3 * CHUNK) if it not in naive)
    assert found.first_absent(start) == first
    absent = [it for it in range(start, end) if it not in naive]
    from_there = found.start_of_last_absent(count, start, end)
    left = [it for it in absent if it >= from_there]
    assert left == absent[len(absent) - min(count, len(absent)) :]
    bits = found.bits(start, end)
    assert [it for it in range(start, end) if bits >> (it - start) & 1] == [
        it for it in range(start, end) if it in naive
    ]
    assert bits >> size == 0


@settings(deadline=None)
@given(sets, st.integers(1, 3))
def test_bytes_and_parts(naive: set[int], chunks: int) -> None:
    found = made(naive)
    assert OffsetSet.decode(found.encode()) == found
    parts = list(found.parts(chunks))
    assert [it for part in parts for it in part] == sorted(naive)
    assert all(len({it // CHUNK for it in part}) <= chunks for part in parts)


def test_scattered_offsets_take_a_bit_each() -> None:
    found = OffsetSet(range(0, 2 * CHUNK, 2))
    assert len(found.encode()) < 2 * (CHUNK // 8 + 20)
    assert OffsetSet.decode(found.encode()) == found
    whole = OffsetSet(range(CHUNK))
    assert len(whole.encode()) < 20
    assert OffsetSet.decode(whole.encode()) == whole


@settings(deadline=None)
@given(sets, st.data())
def test_other_bytes_are_refused_or_mean_a_set(naive: set[int], data: st.DataObject) -> None:
    encoded = bytearray(made(naive).encode())
    if not encoded:
        return
    at = data.draw(st.integers(0, len(encoded) - 1))
    encoded[at] = data.draw(st.integers(0, 255))
    del encoded[data.draw(st.integers(at, len(encoded))) :]
    try:
        found = OffsetSet.decode(bytes(encoded))
    except ValueError:
        return
    assert OffsetSet.decode(found.encode()) == found


@pytest.mark.parametrize("data", [b"x", b"\0" * 8 + b"\0\1", b"\0" * 8 + b"\0\1\0\2\0\1"])
def test_what_is_no_set(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"cut|run"):
        OffsetSet.decode(data)
