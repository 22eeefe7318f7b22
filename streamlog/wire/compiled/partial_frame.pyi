"""A large frame of which a part has come, compiled: the rest is received where it will be read.

A frame of a megabyte comes in dozens of pieces. To join them, and to cut the frame out of what has come, would copy
it twice more, which takes as long as to check it. A ``bytes`` that nothing else knows yet is filled here instead.
"""

from typing import final

from typing_extensions import Buffer

SOURCES: int

@final
class PartialFrame(Buffer):
    """As a buffer, it is the room for what is missing."""

    def __init__(self, size: int) -> None:
        """Of so many bytes, without its length; they take memory as they come. Raises MemoryError."""
    missing: int
    """So many bytes have yet to come."""

    def put(self, data: bytes | memoryview) -> int:
        """As much of it as the frame still needs; how much that was."""

    def filled(self, count: int) -> None:
        """So many bytes have been received into the room. Raises ValueError for more than there was."""

    def take(self) -> bytes:
        """The whole frame, once. Raises ValueError while bytes are missing, while anything holds the room, and
        afterwards.
        """
