import struct
from typing import Final

from streamlog.errors import FrameTooLarge, MalformedFrame

LENGTH_BYTES: Final = 4
KEPT_BYTES_MAX: Final = 64 * 1024
"""Of frames that are given out, while parts of others lie behind them."""
_LENGTH: Final = struct.Struct(">i")
_HTTP: Final = (b"GET ", b"POST", b"HEAD", b"PUT ")


class FrameSplitter:
    """Cuts a stream of bytes into frames. Half a frame is kept until the rest has come.

    Memory: what has arrived and is not given out, and ``KEPT_BYTES_MAX``; never what a length
    promises.
    """

    def __init__(self, request_bytes_max: int) -> None:
        self.request_bytes_max = request_bytes_max
        """May be changed; what is longer is refused."""
        self._pending: bytes | bytearray = b""  # arrived; bytes: all in one go, as most requests do
        self._position = 0  # in _pending; what lies before it has been given out
        self.buffered = 0
        """Bytes that have arrived and are not part of a frame given out."""

    def feed(self, data: bytes | memoryview) -> None:
        if not self.buffered:
            self._pending, self._position = bytes(data), 0
        else:
            if isinstance(self._pending, bytes):
                self._pending = bytearray(self._pending)
            if self._position:
                del self._pending[: self._position]
                self._position = 0
            self._pending += data
        self.buffered += len(data)

    def next_frame(self) -> bytes | None:
        """The next whole frame without its length, or None. Raises ProtocolViolation."""
        pending, start, buffered = self._pending, self._position + LENGTH_BYTES, self.buffered
        if buffered < LENGTH_BYTES:
            return None
        (length,) = _LENGTH.unpack_from(pending, self._position)
        if length < 0:
            raise MalformedFrame(f"frame of length {length}")
        if length > self.request_bytes_max:
            raise FrameTooLarge(_too_large(length, self.request_bytes_max))
        if buffered < LENGTH_BYTES + length:
            return None
        self._position = start + length
        self.buffered = buffered - LENGTH_BYTES - length
        request = bytes(memoryview(pending)[start : self._position])
        if not self.buffered:
            self._pending, self._position = b"", 0
        elif self._position > KEPT_BYTES_MAX:
            self._pending, self._position = bytes(memoryview(pending)[self._position :]), 0
        return request


def frame(*parts: bytes) -> bytes:
    """One frame of these parts."""
    return b"".join((_LENGTH.pack(sum(map(len, parts))), *parts))


def _too_large(length: int, allowed: int) -> str:
    text = f"frame of {length} bytes, allowed are {allowed}"
    begins = length.to_bytes(LENGTH_BYTES, "big")
    if begins.startswith(b"\x16\x03"):
        return f"{text} (it looks like TLS, which is not spoken here)"
    if begins in _HTTP:
        return f"{text} (it looks like HTTP, which is not spoken here)"
    return text
