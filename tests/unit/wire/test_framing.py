import pytest

from streamlog.errors import FrameTooLarge, MalformedFrame
from streamlog.wire.framing import FrameSplitter, frame


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
