from typing import Final

LARGE_BYTES: Final = 64 * 1024
"""Requests up to that size are not counted: a read of the socket has them whole, or nearly."""


class ReceiveRoomFull(Exception):
    """Too much has come of requests that are not there as a whole."""


class ReceiveRoom:
    """For what has come in part of large requests, over all connections.

    Policy when it is full: the connection whose bytes find no room is closed. To have it wait would
    let a few that never send the rest keep all others waiting.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.taken_bytes = 0

    def take(self, count: int) -> int:
        """So many bytes have come. Raises ReceiveRoomFull."""
        if self.taken_bytes + count > self._bytes_max:
            text = f"requests that have come in part take {self.taken_bytes} bytes already"
            raise ReceiveRoomFull(f"{text}, allowed are {self._bytes_max}")
        self.taken_bytes += count
        return count

    def give_back(self, count: int) -> None:
        self.taken_bytes -= count
