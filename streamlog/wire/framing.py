import struct
from typing import Final

from streamlog.errors import FrameTooLarge, MalformedFrame

LENGTH_BYTES: Final = 4
_LENGTH: Final = struct.Struct(">i")


class FrameSplitter:
    """Cuts a stream of bytes into frames. Half a frame is kept until the rest has come.

    Memory: what has arrived of one frame, never what its length promises.
    """

    def __init__(self, frame_bytes_max: int) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._pending: bytes | bytearray = b""  # arrived; bytes: all in one go, as most requests do
        self._position = 0  # in _pending; what lies before it has been given out

    @property
    def buffered(self) -> int:
        """Bytes that have arrived and are not part of a frame given out."""
        return len(self._pending) - self._position

    def feed(self, data: bytes | memoryview) -> None:
        if self._position == len(self._pending):
            self._pending, self._position = bytes(data), 0
            return
        if isinstance(self._pending, bytes):
            self._pending = bytearray(self._pending)
        if self._position:
            del self._pending[: self._position]
            self._position = 0
        self._pending += data

    def next_frame(self) -> bytes | None:
        """The next whole frame without its length, or None. Raises ProtocolViolation."""
        pending, start = self._pending, self._position + LENGTH_BYTES
        if len(pending) < start:
            return None
        (length,) = _LENGTH.unpack_from(pending, self._position)
        if length < 0:
            raise MalformedFrame(f"frame of length {length}")
        if length > self._frame_bytes_max:
            raise FrameTooLarge(f"frame of {length} bytes, allowed are {self._frame_bytes_max}")
        if len(pending) < start + length:
            return None
        self._position = start + length
        return bytes(memoryview(pending)[start : self._position])


def frame(*parts: bytes) -> bytes:
    """One frame of these parts."""
    return b"".join((_LENGTH.pack(sum(map(len, parts))), *parts))
