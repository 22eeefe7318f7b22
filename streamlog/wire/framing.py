import struct
from typing import Final

from streamlog.errors import FrameTooLarge, MalformedFrame
from streamlog.wire.compiled.partial_frame import PartialFrame

LENGTH_BYTES: Final = 4
KEPT_BYTES_MAX: Final = 64 * 1024
"""Of frames that are given out, while parts of others lie behind them."""
LARGE_BYTES: Final = 64 * 1024
"""A frame of more is received where it will be read."""
PROMISED_MAX: Final = 16
"""So many times what has come of a large frame, its length may promise before memory is reserved for all of it."""
AWAITED_BYTES_MAX: Final = 256 * 1024
"""See ``FrameSplitter.awaited_bytes``. What more came at once would be out of the processor's cache."""
_LENGTH: Final = struct.Struct(">i")
_HTTP: Final = (b"GET ", b"POST", b"HEAD", b"PUT ")


class FrameSplitter:
    """Cuts a stream of bytes into frames. Half a frame is kept until the rest has come.

    Memory: what has arrived and is not given out, and ``KEPT_BYTES_MAX``; never what a length promises, but for
    ``PROMISED_MAX`` times what has arrived.
    """

    def __init__(self, request_bytes_max: int) -> None:
        self.request_bytes_max = request_bytes_max
        """May be changed; what is longer is refused."""
        self.partial: PartialFrame | None = None
        """The large frame that is next, while it is not whole: its rest may be received into it, see ``filled``."""
        self._pending: bytes | bytearray = b""  # arrived; bytes: all in one go, as most requests do
        self._position = 0  # in _pending; what lies before it has been given out
        self.buffered = 0
        """Bytes that have arrived and are not part of a frame given out."""

    @property
    def awaited_bytes(self) -> int:
        """So many bytes of the large frame that is next may be awaited before any of them is received; they are in
        memory as if they had been.
        """
        return 0 if self.partial is None else min(self.partial.missing, AWAITED_BYTES_MAX)

    def feed(self, data: bytes | memoryview) -> None:
        if not self.buffered:
            self._pending, self._position = bytes(data), 0
            self.buffered = len(data)
            return
        self.buffered += len(data)
        if self.partial is not None:
            data = memoryview(data)[self.partial.put(data) :]
        if isinstance(self._pending, bytes):
            self._pending = bytearray(self._pending)
        if self._position:
            del self._pending[: self._position]
            self._position = 0
        self._pending += data

    def whole(self, data: bytes) -> bytes | None:
        """The frame that ``data`` is, which was not fed; None: it is not just one, or is refused."""
        length = len(data) - LENGTH_BYTES
        if not 0 <= length <= self.request_bytes_max or _LENGTH.unpack_from(data)[0] != length:
            return None
        return data[LENGTH_BYTES:]

    def filled(self, count: int) -> None:
        """So many bytes have been received into ``partial``."""
        assert self.partial is not None, "a frame has room"
        self.partial.filled(count)
        self.buffered += count

    def next_frame(self) -> bytes | None:
        """The next whole frame without its length, or None. Raises ProtocolViolation."""
        if self.partial is not None:
            return self._completed(self.partial)
        pending, start = self._pending, self._position + LENGTH_BYTES
        arrived = self.buffered - LENGTH_BYTES
        if arrived < 0:
            return None
        (length,) = _LENGTH.unpack_from(pending, self._position)
        if length < 0:
            raise MalformedFrame(f"frame of length {length}")
        if length > self.request_bytes_max:
            raise FrameTooLarge(_too_large(length, self.request_bytes_max))
        if arrived < length:
            if LARGE_BYTES < length <= PROMISED_MAX * arrived:
                self.partial = PartialFrame(length)
                self.partial.put(memoryview(pending)[start:])
                self._pending, self._position = b"", 0
            return None
        self._position = start + length
        self.buffered -= LENGTH_BYTES + length
        request = bytes(memoryview(pending)[start : self._position])
        if not self.buffered:
            self._pending, self._position = b"", 0
        elif self._position > KEPT_BYTES_MAX:
            self._pending, self._position = bytes(memoryview(pending)[self._position :]), 0
        return request

    def _completed(self, partial: PartialFrame) -> bytes | None:
        if partial.missing:
            return None
        request, self.partial = partial.take(), None
        self.buffered -= LENGTH_BYTES + len(request)
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
