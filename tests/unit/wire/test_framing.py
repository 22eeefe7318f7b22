import pytest

from streamlog.errors import FrameTooLarge, MalformedFrame
from streamlog.wire.compiled.partial_frame import PartialFrame
from streamlog.wire.framing import LARGE_BYTES, LENGTH_BYTES, PROMISED_MAX, FrameSplitter, frame


def test_frames_come_out_as_they_went_in_however_they_are_cut() -> None:
    wanted = [b"", b"a", b"bc" * 300, b"", b"d"]
    stream = b"".join(frame(body) for body in wanted)
    for size in (1, 2, 3, 5, len(stream)):
        splitter = FrameSplitter(1_000)
        found = []
        for start in range(0, len(stream), size):
            splitter.feed(stream[start : start + size])
            while (one := splitter.next_frame()) is not None:
                found.append(one)
        assert found == wanted
        assert splitter.buffered == 0


def test_a_frame_at_the_limit_passes_and_one_over_it_is_refused_by_its_length_alone() -> None:
    splitter = FrameSplitter(8)
    splitter.feed(frame(bytes(8)))
    assert splitter.next_frame() == bytes(8)
    splitter.feed(b"\x00\x00\x00\x09")
    with pytest.raises(FrameTooLarge, match="frame of 9 bytes, allowed are 8"):
        splitter.next_frame()


def test_a_negative_length_is_malformed() -> None:
    splitter = FrameSplitter(8)
    splitter.feed(b"\xff\xff\xff\xff")
    with pytest.raises(MalformedFrame):
        splitter.next_frame()


def test_half_a_frame_is_kept() -> None:
    splitter = FrameSplitter(8)
    splitter.feed(b"\x00\x00")
    assert splitter.next_frame() is None
    splitter.feed(b"\x00\x02a")
    assert splitter.next_frame() is None
    assert splitter.buffered == 5
    splitter.feed(b"b")
    assert splitter.next_frame() == b"ab"


def test_a_frame_is_built_of_parts() -> None:
    assert frame(b"ab", b"c") == b"\x00\x00\x00\x03abc"


def test_the_rest_of_a_large_frame_is_received_where_it_will_be_read() -> None:
    body = bytes(range(256)) * 1_000
    stream = frame(body)
    splitter = FrameSplitter(1_000_000)
    splitter.feed(stream[:70_000])
    assert splitter.partial is None, "it is not known yet what comes"
    assert splitter.next_frame() is None
    room = splitter.partial
    assert room is not None
    with memoryview(room) as view:
        assert len(view) == room.missing == len(stream) - 70_000
        view[:100_000] = stream[70_000:170_000]
    splitter.filled(100_000)
    assert (splitter.next_frame(), splitter.buffered) == (None, 170_000)
    splitter.feed(stream[170_000:] + frame(b"next") + b"\x00")
    assert splitter.next_frame() == body
    assert splitter.partial is None
    assert splitter.next_frame() == b"next"
    assert (splitter.next_frame(), splitter.buffered) == (None, 1)


def test_a_length_promises_no_more_than_so_many_times_what_has_come() -> None:
    size = 10 * PROMISED_MAX * LARGE_BYTES
    splitter = FrameSplitter(size)
    splitter.feed(size.to_bytes(LENGTH_BYTES, "big") + bytes(10 * LARGE_BYTES - 1))
    assert splitter.next_frame() is None
    assert splitter.partial is None
    splitter.feed(b"\x00")
    assert splitter.next_frame() is None
    assert splitter.partial is not None


def test_a_large_frame_over_the_limit_is_refused_before_there_is_room_for_it() -> None:
    splitter = FrameSplitter(LARGE_BYTES + 1)
    splitter.feed(frame(bytes(LARGE_BYTES + 2))[:LARGE_BYTES])
    with pytest.raises(FrameTooLarge):
        splitter.next_frame()


def test_a_whole_frame_is_known_without_being_kept() -> None:
    splitter = FrameSplitter(8)
    assert splitter.whole(frame(b"abc")) == b"abc"
    assert splitter.whole(frame(b"")) == b""
    for data in (b"", b"\x00", frame(b"abc")[:-1], frame(b"abc") + b"\x00", frame(bytes(9))):
        assert splitter.whole(data) is None, data
    assert splitter.buffered == 0


def test_a_partial_frame_is_taken_once_and_whole() -> None:
    partial = PartialFrame(5)
    assert partial.put(b"ab") == 2
    with pytest.raises(ValueError, match="not whole"):
        partial.take()
    with pytest.raises(ValueError, match="4 bytes received into room for 3"):
        partial.filled(4)
    with pytest.raises(ValueError, match="-1 bytes"):
        partial.filled(-1)
    view = memoryview(partial)
    view[:] = b"cde"
    partial.filled(3)
    with pytest.raises(ValueError, match="is being received"):
        partial.take()
    view.release()
    assert (partial.missing, partial.put(b"more")) == (0, 0)
    assert partial.take() == b"abcde"
    with pytest.raises(ValueError, match="was taken"):
        partial.take()
    with pytest.raises(BufferError):
        memoryview(partial)
    with pytest.raises(ValueError, match="bytes that are missing"):
        PartialFrame(0)
