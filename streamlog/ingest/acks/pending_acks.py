"""Who waits for the commit of an append. Acknowledgements of ``partition.pending``."""

from typing import Final, Protocol

from streamlog.errors import StreamlogError
from streamlog.ingest.acks.replies import Replies


class AckRequest(Protocol):
    """What is needed of ``inlet.Inlet``."""

    def committed(self, acks: "PendingAcks", base_offset: int) -> None: ...
    def failed(self, acks: "PendingAcks", error: Exception) -> None: ...


class PendingAcks:
    """One append's publishers, until it is committed or has failed. An ``Acknowledgement``."""

    __slots__ = ("_inlet", "base_offset", "count", "replies", "size_bytes")

    def __init__(
        self, inlet: AckRequest, base_offset: int, count: int, replies: Replies, size_bytes: int
    ) -> None:
        self._inlet = inlet
        self.base_offset = base_offset
        self.count = count
        self.replies = replies
        """Those that the commit answers."""
        self.size_bytes = size_bytes

    def committed(self, base_offset: int) -> None:
        self._inlet.committed(self, base_offset)

    def failed(self, error: StreamlogError) -> None:
        self._inlet.failed(self, error)


class _Unawaited:
    """Nobody waits for the commit, which may be long in coming."""

    def committed(self, base_offset: int) -> None:
        pass

    def failed(self, error: StreamlogError) -> None:
        pass


UNAWAITED: Final = _Unawaited()
