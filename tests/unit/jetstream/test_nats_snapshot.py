"""nats-server's snapshots: what is written is read again, whatever the pieces; what is damaged is refused."""

import contextlib
import json
import random
from collections.abc import Iterator

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.delivery.state_encoding import DeliveredPartition, DeliveryState, PendingState
from streamlog.errors import CorruptData
from streamlog.jetstream.snapshot.nats_snapshot import (
    ARCHIVE_HEAD,
    ARCHIVED,
    S2_HEAD,
    TAR_END,
    ArchivedEnd,
    MessageBlock,
    Removed,
    SmallFile,
    SnapshotFiles,
    SnapshotItem,
    SnapshotMessage,
    archived_state,
    consumer_state,
    delivery_state,
    s2_frames,
    tar_file,
)
from streamlog.jetstream.snapshot.snapshot_codec import HighwayHash, s2_block

MASK = (1 << 64) - 1
NOW_MS = 1_700_000_000_000
TIMES = {"now_ms": NOW_MS, "wait_ms": 30_000, "step_ms": 100}
HEADERS = b"NATS/1.0\r\nA: b\r\n\r\n"


class PlainHighwayHash:
    """As its paper has it, in plain Python."""

    MUL0 = (0xDBE6D5D5FE4CCE2F, 0xA4093822299F31D0, 0x13198A2E03707344, 0x243F6A8885A308D3)
    MUL1 = (0x3BD39E10CB0EF593, 0xC0ACF169B5F18A8C, 0xBE5466CF34E90C6C, 0x452821E638D01377)

    def __init__(self, key: bytes) -> None:
        parts = [int.from_bytes(key[it : it + 8], "little") for it in range(0, 32, 8)]
        self.mul0, self.mul1 = list(self.MUL0), list(self.MUL1)
        self.v0 = [a ^ b for a, b in zip(self.MUL0, parts, strict=True)]
        self.v1 = [a ^ swapped(b) for a, b in zip(self.MUL1, parts, strict=True)]

    def update(self, lanes: list[int]) -> None:
        for i in range(4):
            self.v1[i] = (self.v1[i] + self.mul0[i] + lanes[i]) & MASK
            self.mul0[i] ^= (self.v1[i] & 0xFFFFFFFF) * (self.v0[i] >> 32)
            self.v0[i] = (self.v0[i] + self.mul1[i]) & MASK
            self.mul1[i] ^= (self.v0[i] & 0xFFFFFFFF) * (self.v1[i] >> 32)
        for made, of in ((self.v0, self.v1), (self.v1, self.v0)):
            for low in (0, 2):
                a, b = (it.to_bytes(8, "little") for it in (of[low], of[low + 1]))
                first = bytes((a[3], b[4], a[2], a[5], b[6], a[1], b[7], a[0]))
                second = bytes((b[3], a[4], b[2], b[5], b[1], a[6], b[0], a[7]))
                made[low] = (made[low] + int.from_bytes(first, "little")) & MASK
                made[low + 1] = (made[low + 1] + int.from_bytes(second, "little")) & MASK

    def digest(self, data: bytes) -> bytes:
        whole = len(data) & ~31
        for at in range(0, whole, 32):
            self.update(lanes(data[at : at + 32]))
        if rest := data[whole:]:
            self.rest(rest)
        for _ in range(4):
            self.update([swapped(self.v0[it]) for it in (2, 3, 0, 1)])
        found = self.v0[0] + self.v1[0] + self.mul0[0] + self.mul1[0]
        return (found & MASK).to_bytes(8, "little")

    def rest(self, data: bytes) -> None:
        size, packet = len(data), bytearray(32)
        for i in range(4):
            self.v0[i] = (self.v0[i] + (size << 32) + size) & MASK
            high, low = divmod(self.v1[i], 1 << 32)
            self.v1[i] = rotated(high, size) << 32 | rotated(low, size)
        fours = size & ~3
        packet[:fours] = data[:fours]
        if size & 16:
            packet[28:32] = data[-4:]
        elif size & 3:
            tail = data[fours:]
            packet[16:19] = bytes((tail[0], tail[len(tail) >> 1], tail[-1]))
        self.update(lanes(bytes(packet)))


def swapped(value: int) -> int:
    return value >> 32 | (value & 0xFFFFFFFF) << 32


def rotated(value: int, count: int) -> int:
    return (value << count | value >> 32 - count) & 0xFFFFFFFF


def lanes(packet: bytes) -> list[int]:
    return [int.from_bytes(packet[it : it + 8], "little") for it in range(0, 32, 8)]


@given(st.binary(min_size=32, max_size=32), st.binary(max_size=200))
def test_the_hash_is_that_of_plain_python(key: bytes, data: bytes) -> None:
    assert HighwayHash(key).digest(data) == PlainHighwayHash(key).digest(data)


def test_the_hash_is_that_of_its_authors() -> None:
    made = HighwayHash(bytes(range(32)))
    assert made.digest(b"")[::-1].hex() == "907a56de22c26e53"
    assert made.digest(b"\0")[::-1].hex() == "7eab43aac7cddd78"


Copy = tuple[int, int]


def plain_block(parts: list[bytes | Copy]) -> tuple[bytes, bytes]:
    """A block of S2, and what it holds. A copy: distance (0: the last one again), length."""
    out, held, last = bytearray(), bytearray(), 0
    for it in parts:
        if isinstance(it, bytes):
            out += bytes([61 << 2]) + (len(it) - 1).to_bytes(2, "little") + it
            held += it
            continue
        distance, length = it
        if distance:
            last = distance
            out += bytes([(length - 1) << 2 | 3]) + distance.to_bytes(4, "little")
        elif length <= 8:
            out += bytes([(length - 4) << 2 | 1, 0])
        elif length < 264:
            out += bytes([5 << 2 | 1, 0, length - 8])
        else:
            out += bytes([6 << 2 | 1, 0]) + (length - 260).to_bytes(2, "little")
        for _ in range(length):
            held.append(held[-last])
    head, size = bytearray(), len(held)
    while size > 0x7F:
        head.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes(head) + bytes([size]) + bytes(out), bytes(held)


@given(
    st.binary(min_size=4, max_size=30),
    st.integers(1, 4),
    st.lists(
        st.one_of(
            st.binary(min_size=1, max_size=10),
            st.tuples(st.integers(1, 4), st.integers(1, 64)),
            st.tuples(st.just(0), st.integers(4, 2_000)),
        ),
        max_size=10,
    ),
)
def test_blocks_with_repeats_are_decoded(
    first: bytes, distance: int, parts: list[bytes | Copy]
) -> None:
    block, held = plain_block([first, (distance, 5), *parts])
    assert s2_block(block, 1 << 20) == held


@given(st.binary(max_size=5_000))
def test_what_snappy_packs_is_decoded(data: bytes) -> None:
    assert s2_block(bytes(cramjam.snappy.compress_raw(data)), 1 << 20) == data


@given(st.binary(max_size=60))
def test_garbage_is_no_block(data: bytes) -> None:
    with contextlib.suppress(CorruptData):
        assert len(s2_block(data, 1_000)) <= 1_000


SUBJECTS = st.sampled_from(["a.b", "a", "ä.ö", ""])
MESSAGES = st.lists(
    st.tuples(SUBJECTS, st.sampled_from([b"", HEADERS]), st.binary(max_size=300)), max_size=20
)


def snapshot_of(messages: list[SnapshotMessage], *, stream: str = "S", size: int = 5) -> bytes:
    raw, index = bytearray(), 1
    files: list[tuple[str, bytes]] = [("meta.inf", b"{}"), (f"obs/{'c' * 150}/o.dat", b"abc")]
    while messages:
        block, messages = MessageBlock(stream, index), list(messages)
        for it in messages[:size]:
            block.add(it)
        files.append((block.name, bytes(block.data)))
        messages, index = messages[size:], index + 1
    for name, data in files:
        raw += b"".join(tar_file(name, data, 1))
    return S2_HEAD + s2_frames(bytes(raw) + TAR_END)


def read(data: bytes, *, stream: str = "S", step: int = 1 << 20) -> list[SnapshotItem]:
    files, found = SnapshotFiles(stream), list[SnapshotItem]()
    for at in range(0, len(data), step):
        found += files.feed(data[at : at + step])
    files.end()
    return found


def numbered(messages: list[tuple[str, bytes, bytes]]) -> Iterator[SnapshotMessage]:
    for number, (subject, headers, data) in enumerate(messages, 1):
        yield SnapshotMessage(3 * number, NOW_MS + number, subject, headers, data)


@given(MESSAGES, st.integers(1, 3_000))
def test_what_is_written_is_read_in_any_pieces(
    messages: list[tuple[str, bytes, bytes]], step: int
) -> None:
    wanted = list(numbered(messages))
    found = read(snapshot_of(wanted), step=step)
    assert found[:2] == [SmallFile("", "meta.inf", b"{}"), SmallFile("c" * 150, "o.dat", b"abc")]
    assert found[2:] == wanted


def some_messages() -> list[SnapshotMessage]:
    return list(numbered([("a.b", HEADERS, bytes([it]) * 50) for it in range(20)]))


def test_a_snapshot_that_is_cut_anywhere_is_refused() -> None:
    data = snapshot_of(some_messages())
    for size in range(0, len(data) - 1, 7):
        with pytest.raises(CorruptData):
            read(data[:size])


def test_a_snapshot_with_a_wrong_byte_is_refused_or_the_same() -> None:
    """Nothing is where a wrong byte would not be found, but the heads of skippable frames."""
    data, rng = snapshot_of(some_messages()), random.Random(1)
    whole = read(data)
    for _ in range(300):
        damaged = bytearray(data)
        damaged[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        with contextlib.suppress(CorruptData):
            assert read(bytes(damaged)) == whole


def test_messages_of_a_stream_of_another_name_are_refused() -> None:
    with pytest.raises(CorruptData, match="another name"):
        read(snapshot_of(some_messages()), stream="T")


def test_erased_messages_are_told() -> None:
    block = MessageBlock("S", 1)
    block.add(SnapshotMessage(1, NOW_MS, "a", b"", b"x"))
    block.add_erased(4, NOW_MS)
    data = b"".join(tar_file(block.name, block.data, 1)) + TAR_END
    found = read(S2_HEAD + s2_frames(data))
    assert found[1] == Removed(4, NOW_MS, in_place=True)


def test_what_is_no_file_is_refused() -> None:
    head = bytearray(next(iter(tar_file("msgs/1.blk", b"", 1))))
    head[156:157] = b"2"  # a symbolic link
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    with pytest.raises(CorruptData, match="no file"):
        read(S2_HEAD + s2_frames(bytes(head) + TAR_END))


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(out) + bytes([number])


def entry(name: bytes, time_ns: int, sequence: int, headers: bytes, payload: bytes) -> bytes:
    numbers = (len(name), time_ns << 1, sequence, len(headers), len(payload))
    return b"".join(map(varint, numbers)) + name + headers + payload


@given(MESSAGES, st.integers(1, 500))
def test_an_archive_is_read_in_any_pieces(
    messages: list[tuple[str, bytes, bytes]], step: int
) -> None:
    wanted = list(numbered(messages))
    raw = ARCHIVE_HEAD + entry(b"state.json", NOW_MS * 10**6, 0, b"", b'{"last_seq": 99}')
    raw += entry(b"consumers/w", 0, 0, b"", b"{}")
    for it in wanted:
        time_ns = it.timestamp_ms * 10**6
        raw += entry(it.subject.encode(), time_ns, it.sequence, it.header_block, it.data)
    data = S2_HEAD + s2_frames(raw + bytes(5))
    found = read(data, step=step)
    assert found[:2] == [ArchivedEnd(99, NOW_MS), SmallFile("w", ARCHIVED, b"{}")]
    assert found[2:] == wanted
    with pytest.raises(CorruptData):
        read(S2_HEAD + s2_frames(raw))


@st.composite
def states(draw: st.DrawFn) -> DeliveryState:
    end = draw(st.integers(1, 500))
    offsets = sorted(draw(st.sets(st.integers(0, end - 1), max_size=20)))
    counts = [draw(st.integers(1, 4)) for _ in offsets]
    first = sum(counts)
    pending = [
        PendingState(offset, place + 1, count, draw(st.integers(0, 300)))
        for place, (offset, count) in enumerate(zip(offsets, counts, strict=True))
    ]
    sequence = max(first, 1) + draw(st.integers(0, 100))
    return DeliveryState(sequence, {0: DeliveredPartition(end, end, pending)}, [])


@given(states())
def test_a_consumers_state_is_read_as_it_was_but_for_parts_of_seconds(
    state: DeliveryState,
) -> None:
    assert_same(delivery_state(consumer_state(state, **TIMES), **TIMES), state)


def assert_same(found: DeliveryState | None, state: DeliveryState) -> None:
    assert found is not None and found.sequence == state.sequence
    (was,), (has,) = state.partitions.values(), found.partitions.values()
    assert (has.delivered_end, has.next_offset) == (was.delivered_end, was.delivered_end)
    assert [it[:3] for it in has.pending] == [it[:3] for it in was.pending]
    for before, after in zip(was.pending, has.pending, strict=True):
        assert before.steps_left is not None and after.steps_left is not None
        assert abs(before.steps_left - after.steps_left) <= 10
    assert DeliveryState.decode(found.encode(), 1_000) == found


def test_an_archived_state_is_read() -> None:
    told = json.loads(
        '{"delivered": {"consumer_seq": 7, "stream_seq": 9}, "ack_floor": {"consumer_seq": 1,'
        ' "stream_seq": 1}, "pending": {"4": {"Sequence": 3, "Timestamp": 1699999990000000000}},'
        ' "redelivered": {"4": 2}}'
    )
    pending = [PendingState(3, 3, 3, 200)]
    wanted = DeliveryState(7, {0: DeliveredPartition(9, 9, pending)}, [])
    assert archived_state(told, **TIMES) == wanted


@given(st.binary(max_size=40))
def test_a_state_that_is_none_is_refused(data: bytes) -> None:
    try:
        found = delivery_state(bytes([22, 2]) + data, **TIMES)
    except CorruptData:
        return
    assert found is None or DeliveryState.decode(found.encode(), 1_000_000)
