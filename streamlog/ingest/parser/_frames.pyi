"""The frame parser, compiled.

Only a line that no nats-server writes is an error of the connection.
"""

from typing import Final

from streamlog.ingest.parser._collector import RecordCollector
from streamlog.ingest.parser._partitioner import Partitioner

Control = tuple[str, bytes]
SOURCES: int

FRAME_BYTES_MAX: Final = 64 * 1024 * 1024

LINE_BYTES_MAX: Final = 1024 * 1024

class FrameParser:
    """NATS protocol lines and payloads in any pieces; messages go to the inflow of their sid.

    After an error the connection is of no more use. What was parsed before it is still handed out:
    the error is raised by the first ``feed`` or ``take_controls`` that has nothing else to return.
    """

    def __init__(self, *, frame_bytes_max: int = FRAME_BYTES_MAX) -> None: ...
    @property
    def dropped(self) -> int:
        """Messages of an unknown sid."""

    def bind(self, sid: int, target: RecordCollector | Partitioner) -> None:
        """Messages of ``sid`` go to ``target``, or to the inflow that it chooses."""

    def unbind(self, sid: int) -> None:
        """Messages of ``sid`` are dropped, and counted."""

    def take_controls(self) -> list[Control]:
        """(PING, PONG, INFO, ERR or OK; its argument) in the order in which they came."""

    def feed(self, data: bytes | memoryview) -> list[RecordCollector]:
        """Parse; the inflows touched, in the order of the first touch.

        Raises MalformedFrame or FrameTooLarge, and what an ``admit`` raises.
        """
