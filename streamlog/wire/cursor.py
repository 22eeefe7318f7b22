import struct
from collections.abc import Callable, Generator, Mapping
from typing import Final, TypeVar
from uuid import UUID

from streamlog.errors import BrokenInvariant, MalformedFrame

Buffer = bytes | bytearray | memoryview

_I8: Final = struct.Struct(">b")
_I16: Final = struct.Struct(">h")
_I32: Final = struct.Struct(">i")
_I64: Final = struct.Struct(">q")

UVARINT_BYTES_MAX: Final = 5
ELEMENTS_MAX: Final = 400_000
"""Of all arrays and tagged fields of one Fetch or Produce of a node together. An element of a few
bytes on the wire is hundreds in memory: a request of the largest size would take gigabytes, and
minutes.
"""
STEP_ITEMS: Final = 32
"""Items of an array that are read or written between two yields."""
WEIGHED_AT_ONCE: Final = 1_024
"""After so many elements the reader of a client's request is told how many there are by then."""
STRING_BYTES_MAX: Final = 32_767
"""Of a text, as in Kafka. In flexible versions the wire itself would allow gigabytes."""
TOPIC_NAME_BYTES_MAX: Final = 249
"""As in Kafka."""
UNLIMITED: Final = 2**63 - 1
_SHORT: Final = tuple(bytes([value]) for value in range(0x80))
NO_UUID: Final = UUID(int=0)
NO_TAGS: Final = b"\x00"
"""A struct ends here."""

T = TypeVar("T")


def finished(steps: Generator[None, None, T]) -> T:
    """What the steps return, all of them carried out at once."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


class Cursor:
    """Reads forward through a frame; whatever does not fit into it is a MalformedFrame.

    Of what a stranger sends, no more than ``elements_max`` elements of arrays and tagged fields are
    read. ``weigh`` is called, before an array is read, with how many there are in all so far, once
    there are ``WEIGHED_AT_ONCE`` more than it was told of; what it raises ends the reading.
    """

    __slots__ = ("_elements", "_floor", "_weigh", "buffer", "elements_left", "end", "position")

    def __init__(
        self,
        buffer: Buffer,
        position: int = 0,
        elements_max: int = UNLIMITED,
        weigh: Callable[[int], None] | None = None,
    ) -> None:
        self.buffer = buffer
        self.position = position  # of the next byte to be read; <= end
        self.end = len(buffer)
        self.elements_left = elements_max
        self._weigh = weigh
        self._elements = elements_max  # had there been none so far
        self._floor = 0  # below it something is to be done before more is read
        if weigh is not None:
            self._floor = max(0, elements_max - WEIGHED_AT_ONCE)

    def limit(self, elements_max: int) -> None:
        """No more than that from here on."""
        less = self.elements_left - elements_max
        if less > 0:
            self.elements_left -= less
            self._elements -= less
            self._floor = max(0, self._floor - less)

    def within(self, length: int) -> "Cursor":
        """Over the next ``length`` bytes; its elements count here, once it is ``passed``."""
        inner = Cursor(self.take(length), 0, self.elements_left, self._weigh)
        inner._elements, inner._floor = self._elements, self._floor
        return inner

    def passed(self, inner: "Cursor") -> None:
        self.elements_left, self._floor = inner.elements_left, inner._floor

    @property
    def remaining(self) -> int:
        return self.end - self.position

    @property
    def needs_no_count(self) -> bool:
        """Whatever is left cannot be more elements than are allowed: each takes a byte. None of them is weighed."""
        return self._weigh is None and self.end - self.position <= self.elements_left

    def unpack(self, fields: struct.Struct) -> tuple[int, ...]:
        """Several fixed-width fields at once."""
        start = self.position
        self.position = start + fields.size
        if self.position > self.end:
            raise MalformedFrame(f"frame ends inside a field at byte {start}")
        return fields.unpack_from(self.buffer, start)

    def i8(self) -> int:
        return self.unpack(_I8)[0]

    def i16(self) -> int:
        return self.unpack(_I16)[0]

    def i32(self) -> int:
        return self.unpack(_I32)[0]

    def i64(self) -> int:
        return self.unpack(_I64)[0]

    def boolean(self) -> bool:
        return self.i8() != 0

    def uvarint(self) -> int:
        start = self.position
        if start < self.end and (byte := self.buffer[start]) < 0x80:  # most of them
            self.position = start + 1
            return byte
        return self._long_uvarint()

    def _long_uvarint(self) -> int:
        value = 0
        for index in range(UVARINT_BYTES_MAX):
            if self.position >= self.end:
                raise MalformedFrame(f"frame ends inside a varint at byte {self.position}")
            byte = self.buffer[self.position]
            self.position += 1
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                return value
        raise MalformedFrame(
            f"varint of more than {UVARINT_BYTES_MAX} bytes at byte {self.position}"
        )

    def take(self, length: int) -> memoryview:
        """The next ``length`` bytes, not copied."""
        start = self.position
        if not 0 <= length <= self.end - start:
            raise MalformedFrame(f"length {length} at byte {start} of a frame of {self.end}")
        self.position = start + length
        return memoryview(self.buffer)[start : self.position]

    def nullable_bytes(self, flexible: bool) -> memoryview | None:
        length = self.uvarint() - 1 if flexible else self.i32()
        return None if length == -1 else self.take(length)

    def nullable_string(self, flexible: bool) -> str | None:
        length = self.uvarint() - 1 if flexible else self.i16()
        if length == -1:
            return None
        if length > STRING_BYTES_MAX:
            raise MalformedFrame(f"text of {length} bytes before byte {self.position}")
        try:
            return str(self.take(length), "utf-8")
        except UnicodeDecodeError:
            raise MalformedFrame(f"text before byte {self.position} is not UTF-8") from None

    def string(self, flexible: bool) -> str:
        value = self.nullable_string(flexible)
        if value is None:
            raise MalformedFrame(f"null before byte {self.position} where text must be")
        return value

    def topic_name(self, flexible: bool) -> str:
        """Of a topic that is known to its client: no other is fetched from or produced to."""
        length = self.uvarint() - 1 if flexible else self.i16()
        if not 0 <= length <= TOPIC_NAME_BYTES_MAX:
            raise MalformedFrame(f"name of a topic of {length} bytes before byte {self.position}")
        try:
            return str(self.take(length), "utf-8")
        except UnicodeDecodeError:
            raise MalformedFrame(f"text before byte {self.position} is not UTF-8") from None

    def nullable_array_length(self, flexible: bool) -> int | None:
        """An element takes a byte or more: a length above what remains is a lie."""
        length = self.uvarint() - 1 if flexible else self.i32()
        if length == -1:
            return None
        if not 0 <= length <= self.remaining:
            raise MalformedFrame(f"array of {length} before byte {self.position} of {self.end}")
        self.elements_left -= length
        if self.elements_left < self._floor:
            self._many()
        return length

    def array_length(self, flexible: bool) -> int:
        length = self.nullable_array_length(flexible)
        if length is None:
            raise MalformedFrame(f"null before byte {self.position} where an array must be")
        return length

    def uuid(self) -> UUID | None:
        value = UUID(bytes=bytes(self.take(16)))
        return None if value == NO_UUID else value

    def tag_count(self) -> int:
        """Of the tagged fields that end a struct. Each is an element, whether known or not."""
        count = self.uvarint()
        if count:
            if count > self.end - self.position:
                raise MalformedFrame(f"{count} tagged fields before byte {self.position}")
            self.elements_left -= count
            if self.elements_left < self._floor:
                self._many()
        return count

    def skip_tags(self) -> None:
        """Passes over tagged fields that are not known here."""
        start = self.position
        if start < self.end and self.buffer[start] == 0:  # nearly always
            self.position = start + 1
            return
        for _ in range(self.tag_count()):
            self.uvarint()
            self.take(self.uvarint())

    def tags(self) -> "dict[int, Cursor]":
        """The tagged fields that end a struct, by tag; there are no arrays in what they hold."""
        count = self.tag_count()
        return {self.uvarint(): Cursor(self.take(self.uvarint())) for _ in range(count)}

    def _many(self) -> None:
        if self.elements_left < 0:
            raise MalformedFrame(f"more elements than are allowed before byte {self.position}")
        if self._weigh is not None:
            self._weigh(self._elements - self.elements_left)
            self._floor = max(0, self.elements_left - WEIGHED_AT_ONCE)


def encode_uvarint(value: int) -> bytes:
    if value < 0:
        raise BrokenInvariant(f"{value} is below zero")
    if value < 0x80:
        return _SHORT[value]
    low, middle = value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80
    if value < 1 << 14:
        return bytes((low, value >> 7))
    if value < 1 << 21:
        return bytes((low, middle, value >> 14))
    return bytes((low, middle, value >> 14 & 0x7F | 0x80)) + encode_uvarint(value >> 21)


def encode_string(value: str | None, flexible: bool) -> bytes:
    if value is None:
        return b"\x00" if flexible else b"\xff\xff"
    data = value.encode()
    length = encode_uvarint(len(data) + 1) if flexible else _I16.pack(len(data))
    return length + data


def encode_array_length(length: int | None, flexible: bool) -> bytes:
    if length is None:
        length = -1
    return encode_uvarint(length + 1) if flexible else _I32.pack(length)


def encode_bytes(value: Buffer | None, flexible: bool) -> bytes:
    if value is None:
        return b"\x00" if flexible else b"\xff\xff\xff\xff"
    length = encode_uvarint(len(value) + 1) if flexible else _I32.pack(len(value))
    return length + value


def encode_tags(tags: Mapping[int, bytes]) -> bytes:
    """The tagged fields that end a struct."""
    out = bytearray(encode_uvarint(len(tags)))
    for tag, content in sorted(tags.items()):
        out += encode_uvarint(tag) + encode_uvarint(len(content)) + content
    return bytes(out)
