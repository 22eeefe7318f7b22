"""Bytes flipped at will in a log at rest: what is served was written, and no more is lost."""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from streamlog.errors import CorruptBatch
from streamlog.log.settings import LogSettings
from tests.log_folder import FOLDER, append, make_batch, open_log
from tests.simulation.disk import SimDisk

SIZE = len(make_batch(0, 2))
SETTINGS = LogSettings(segment_bytes=5 * SIZE, index_interval_bytes=SIZE)
COUNT = 18
END = 2 * COUNT

flips = st.lists(
    st.tuples(st.integers(0, COUNT * SIZE - 1), st.integers(1, 255)), min_size=1, max_size=4
)
small_files = st.lists(
    st.tuples(st.integers(0, 10**6), st.binary(min_size=1, max_size=30)), max_size=3
)


def written() -> tuple[SimDisk, list[bytes]]:
    disk = SimDisk()
    log = open_log(disk, SETTINGS)
    batches = [append(log, 2, timestamp_ms=1_000 + i, epoch=i // 7) for i in range(COUNT)]
    log.close()
    disk.kill()
    return disk, batches


def damage(disk: SimDisk, bits: list[tuple[int, int]], others: list[tuple[int, bytes]]) -> set[int]:
    """Flip bits of the log, seen as one run of bytes; the numbers of the batches that they hit."""
    logs = sorted(name for name in disk.sizes(str(FOLDER)) if name.endswith(".log"))
    for at, mask in bits:
        path = f"{FOLDER}/{logs[at // (5 * SIZE)]}"
        data = bytearray(disk.content(path))
        data[at % (5 * SIZE)] ^= mask
        disk.replace(path, bytes(data))
    small = sorted(set(disk.sizes(str(FOLDER))) - set(logs))
    for at, junk in others:
        path = f"{FOLDER}/{small[at % len(small)]}"
        data = bytearray(disk.content(path))
        start = at % (len(data) + 1)
        data[start : start + len(junk)] = junk
        disk.replace(path, bytes(data))
    return {at // SIZE for at, _ in bits}


@example([(5 * SIZE + 11, 215)], [], 14)  # a length of two batches
@example([(2 * SIZE + 16, 1), (3 * SIZE, 1)], [], 14)  # a magic, and the next one's base offset
@example([(2 * SIZE + 16, 1), (3 * SIZE + 7, 1)], [], 14)
@example([(4 * SIZE + 23, 1)], [], 0)  # how many records a segment's last batch has
@settings(max_examples=150, deadline=None)
@given(bits=flips, others=small_files, recovery_point=st.sampled_from([0, 3, 14, 22, 35, END]))
def test_what_is_served_is_what_was_written(
    bits: list[tuple[int, int]], others: list[tuple[int, bytes]], recovery_point: int
) -> None:
    disk, batches = written()
    hit = damage(disk, bits, others)
    log = open_log(disk, SETTINGS, recovery_point=recovery_point)
    assert log.log_end_offset >= min([recovery_point, *(2 * number for number in hit)])
    served = set()
    for number in range(log.log_end_offset // 2):
        try:
            with log.read(2 * number + 1, 1, log.log_end_offset) as piece:
                data = piece.read()
        except CorruptBatch as error:
            assert str(FOLDER) in str(error)
            continue
        same = bytearray(batches[number])
        same[12:16] = data[12:16]  # the leader epoch: no checksum covers it
        assert data == same
        served.add(number)
    first_hit = min([2 * number for number in hit if 2 * number >= recovery_point], default=END)
    for number in range(COUNT):
        if number not in hit and 2 * number < max(recovery_point, first_hit):
            assert number in served or 2 * number + 2 > log.log_end_offset
