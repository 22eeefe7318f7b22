"""What becomes of a message whose headers ask for something. Pure."""

from enum import Enum, auto
from typing import NamedTuple

from streamlog.ingest.admission.refusal import PublishRefusal


class AckPolicy(Enum):
    """When the publisher is answered."""

    COMMITTED = auto()
    APPENDED = auto()
    NEVER = auto()


class Admission(NamedTuple):
    """``store`` it; or answer ``refusal`` now; or ``duplicate_of`` once that is committed."""

    store: bool
    refusal: PublishRefusal | None = None
    duplicate_of: int | None = None
    ack: AckPolicy | None = None
    """What the message itself asks for; None: as the stream is set."""
    rollup: bytes = b""
    """It has others go: see ``rollups``."""
    purged: bytes = b""
    """Of a schedule's end: the subject of the schedule, which goes."""
    added: tuple[bytes, bytes] | None = None
    """A header that it is stored with besides its own."""
