import struct

import pytest

from streamlog.errors import CorruptBatch
from streamlog.log.segment.batch_scan import (
    BatchPlace,
    Damage,
    base_offset_at,
    find_batch,
    find_boundary,
    scan,
    scan_past_damage,
)
from tests.log_folder import make_batch
from tests.simulation.disk import SimDisk, SimFile

SIZES = [1, 3, 2, 1, 4]
STARTS = [0, 1, 4, 6, 7, 11]


def file_of(data: bytes) -> SimFile:
    disk = SimDisk()
    disk.replace("/x.log", data)
    return disk.open("/x.log")


@pytest.fixture
def parts() -> list[bytes]:
    """Five batches, of offsets 0, 1-3, 4-5, 6, 7-10."""
    return [
        make_batch(start, [b"%d" % start * 20] * size, timestamp_ms=1_000 + start, epoch=3)
        for start, size in zip(STARTS, SIZES, strict=False)
    ]


def ends(parts: list[bytes]) -> list[int]:
    return [sum(map(len, parts[: i + 1])) for i in range(len(parts))]


def flipped(data: bytes, position: int, bits: int = 1) -> bytes:
    changed = bytearray(data)
    changed[position] ^= bits
    return bytes(changed)


@pytest.mark.parametrize("check_crc", [True, False])
def test_batches_are_found_where_they_lie(parts: list[bytes], check_crc: bool) -> None:
    data = b"".join(parts)
    places = list(scan(file_of(data), 0, len(data), 0, check_crc=check_crc))
    assert all(isinstance(place, BatchPlace) for place in places)
    assert [place[1] for place in places] == ends(parts)
    assert [place[2] for place in places] == STARTS[:-1]
    assert [place[3] for place in places] == STARTS[1:]
    assert [place[4] for place in places] == [3] * 5
    assert [tuple(place)[5] for place in places] == [1_000 + start for start in STARTS[:-1]]


def test_a_scan_may_begin_and_end_anywhere(parts: list[bytes]) -> None:
    data = b"".join(parts)
    first, second = len(parts[0]), len(parts[0]) + len(parts[1])
    [place] = scan(file_of(data), first, second, 1)
    assert place[:4] == (first, second, 1, 4)
    assert list(scan(file_of(data), 5, 5, 0)) == []


HEADER_FIELDS = {
    "base offset": (0, ">q", 99),
    "length below the header's": (8, ">i", 48),
    "length negative": (8, ">i", -1),
    "length beyond the end": (8, ">i", 100_000),
    "length of another batch": (8, ">i", 60),
    "magic": (16, ">b", 1),
    "checksum": (17, ">I", 0),
    "last offset delta": (23, ">i", -1),
}


@pytest.mark.parametrize("field", HEADER_FIELDS)
@pytest.mark.parametrize("index", range(5))
def test_a_damaged_field_hides_one_batch_and_no_other(
    parts: list[bytes], field: str, index: int
) -> None:
    position, layout, value = HEADER_FIELDS[field]
    changed = bytearray(parts[index])
    struct.pack_into(layout, changed, position, value)
    data = b"".join([*parts[:index], bytes(changed), *parts[index + 1 :]])
    items = list(scan_past_damage(file_of(data), 0, len(data), 0, 11))
    [damage] = [item for item in items if isinstance(item, Damage)]
    assert damage[:2] == (sum(map(len, parts[:index])), ends(parts)[index])
    assert isinstance(damage, Damage)
    assert (damage.offset, damage.end_offset) == (STARTS[index], STARTS[index + 1])
    assert damage.problem
    good = [item.base_offset for item in items if isinstance(item, BatchPlace)]
    assert good == [start for start in STARTS[:-1] if start != STARTS[index]]


def test_any_flipped_byte_that_the_checksum_covers_is_found(parts: list[bytes]) -> None:
    data = b"".join(parts)
    begin = len(parts[0])
    for at in range(begin + 17, begin + len(parts[1])):
        items = list(scan_past_damage(file_of(flipped(data, at, 0x40)), 0, len(data), 0))
        [damage] = [item for item in items if isinstance(item, Damage)]
        assert damage.position == begin


@pytest.mark.parametrize("over", [1, 2, 3])
def test_a_length_that_reaches_over_whole_batches_hides_none(parts: list[bytes], over: int) -> None:
    """To where another one begins, or to the very end."""
    length = sum(map(len, parts[1 : 2 + over])) - 12
    parts[1] = parts[1][:8] + length.to_bytes(4, "big") + parts[1][12:]
    data = b"".join(parts)
    first, damage, *rest = scan_past_damage(file_of(data), 0, len(data), 0)
    assert isinstance(damage, Damage)
    assert damage[:4] == (first[1], first[1] + len(parts[1]), 1, 4)
    assert [place[2] for place in rest] == STARTS[2:5]


@pytest.mark.parametrize("at", [0, 3, 6, 7])
def test_a_base_offset_that_the_next_batch_belies_is_not_believed(
    parts: list[bytes], at: int
) -> None:
    parts[1] = bytes(len(parts[1]))
    parts[2] = flipped(parts[2], at, 1 if at < 7 else 2)  # after a damage nothing else tells
    data = b"".join(parts)
    first, damage, *rest = scan_past_damage(file_of(data), 0, len(data), 0, 11)
    assert isinstance(damage, Damage)
    assert isinstance(damage, Damage)
    assert (damage.offset, damage.end_offset) == (1, 6)
    assert [place[2] for place in (first, *rest)] == [0, 6, 7]


def test_a_last_base_offset_beyond_the_end_is_not_believed(parts: list[bytes]) -> None:
    parts[3], parts[4] = bytes(len(parts[3])), flipped(parts[4], 6, 1)
    data = b"".join(parts)
    *_, damage = scan_past_damage(file_of(data), 0, len(data), 0, 11)
    assert isinstance(damage, Damage)
    assert isinstance(damage, Damage)
    assert (damage.offset, damage.end_offset, damage.end_position) == (6, 11, len(data))


def test_neighbouring_damages_are_one(parts: list[bytes]) -> None:
    parts[1], parts[2] = bytes(len(parts[1])), bytes(len(parts[2]))
    data = b"".join(parts)
    items = list(scan_past_damage(file_of(data), 0, len(data), 0))
    [damage] = [item for item in items if isinstance(item, Damage)]
    assert isinstance(damage, Damage)
    assert (damage.offset, damage.end_offset) == (1, 6)
    assert len(items) == 4


@pytest.mark.parametrize("left", [1, 12, 60, 61, 80])
def test_a_cut_batch_is_damage_up_to_the_end(parts: list[bytes], left: int) -> None:
    data = b"".join(parts[:2]) + parts[2][:left]
    *good, damage = scan(file_of(data), 0, len(data), 0)
    assert len(good) == 2
    assert isinstance(damage, Damage)
    assert damage[:4] == (len(data) - left, len(data), 4, 4)


def test_zeros_as_a_power_cut_leaves_them_are_damage(parts: list[bytes]) -> None:
    data = parts[0] + bytes(5_000)
    items = list(scan_past_damage(file_of(data), 0, len(data), 0))
    assert items[1] == Damage(len(parts[0]), len(data), 1, 1, "a length of 0 is impossible")


def test_what_is_missing_before_the_next_segment_is_damage_without_bytes(
    parts: list[bytes],
) -> None:
    data = b"".join(parts)
    items = list(scan_past_damage(file_of(data), 0, len(data), 0, 15))
    assert items[-1] == Damage(len(data), len(data), 11, 15, "the records are missing")


def test_batches_larger_than_a_piece_are_checked() -> None:
    large = make_batch(0, [b"x" * 3_000_000])
    data = large + make_batch(1)
    assert [type(item) for item in scan(file_of(data), 0, len(data), 0)] == [BatchPlace] * 2
    for at in (100, 1_500_000, len(large) - 1):
        [damage] = scan(file_of(flipped(data, at)), 0, len(data), 0)
        assert isinstance(damage, Damage)


def test_the_next_whole_batch_is_found_beyond_a_piece() -> None:
    data = bytes(2_500_000) + make_batch(7)
    damage, place = scan_past_damage(file_of(data), 0, len(data), 0)
    assert damage[:4] == (0, 2_500_000, 0, 7)
    assert place[2] == 7


def test_offsets_beyond_32_bits() -> None:
    start = 2**32 - 1
    parts = [make_batch(start + i) for i in range(3)]
    data = b"".join([bytes(len(parts[0])), *parts[1:]])  # the upper half changes just there
    damage, *good = scan_past_damage(file_of(data), 0, len(data), start)
    assert isinstance(damage, Damage)
    assert (damage.offset, damage.end_offset) == (start, start + 1)
    assert [place[2] for place in good] == [start + 1, start + 2]


@pytest.mark.parametrize("offset", range(11))
def test_the_batch_with_an_offset(parts: list[bytes], offset: int) -> None:
    data = b"".join(parts)
    index = max(i for i in range(5) if STARTS[i] <= offset)
    found = find_batch(file_of(data), 0, len(data), offset)
    assert found == (
        ends(parts)[index] - len(parts[index]),
        ends(parts)[index],
        STARTS[index],
        STARTS[index + 1],
    )


def test_no_batch_with_that_offset(parts: list[bytes]) -> None:
    data = b"".join(parts)
    with pytest.raises(CorruptBatch, match="offset 11"):
        find_batch(file_of(data), 0, len(data), 11)
    for wrong in (bytes(100), data[:30], data[5:]):
        with pytest.raises(CorruptBatch):
            find_batch(file_of(wrong), 0, len(wrong), 0)


def test_the_last_boundary_up_to_a_limit(parts: list[bytes]) -> None:
    data = b"".join(parts)
    one, two, *_, last = ends(parts)
    assert find_boundary(file_of(data), 0, len(data), one - 1) == (0, 0)
    assert find_boundary(file_of(data), one, len(data), two - 1) == (one, 1)
    assert find_boundary(file_of(data), 0, len(data), one) == (one, 1)
    assert find_boundary(file_of(data), one, len(data), two + 1) == (two, 4)
    assert find_boundary(file_of(data), 0, len(data), 10**6) == (last, 11)


def test_the_base_offset_at_a_position(parts: list[bytes]) -> None:
    data = b"".join(parts)
    assert base_offset_at(file_of(data), len(parts[0])) == 1
    assert base_offset_at(file_of(data), len(data) - 10) == -1


def test_a_file_that_is_shorter_than_it_should_be(parts: list[bytes]) -> None:
    """Wherever it ends: the search for the next whole batch ends, too."""
    data = b"".join(parts)
    for size in range(len(data)):
        *places, damage = scan_past_damage(file_of(data[:size]), 0, len(data), 0, STARTS[-1])
        whole = [end for end in ends(parts) if end <= size]
        assert [place.end_position for place in places] == whole
        assert isinstance(damage, Damage)
        assert (damage.offset, damage.end_offset) == (STARTS[len(whole)], STARTS[-1])
