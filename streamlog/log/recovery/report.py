import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field

from streamlog.condition import Condition
from streamlog.errors import Unavailable
from streamlog.log.segment.batch_scan import Damage

logger = logging.getLogger(__name__)


@dataclass
class RecoveryReport:
    """What opening a log found and did."""

    scanned_segments: int = 0
    scanned_bytes: int = 0
    cut_bytes: int = 0
    """Torn or unreadable bytes that were dropped."""
    cut_at: int | None = None
    """The offset at which the log was cut."""
    cut_file: str = ""
    cut_position: int = 0
    cut_problem: str = ""
    lost_synced: int = 0
    """Records below the recovery point that are gone: the disk lost what it had said to keep."""
    rebuilt: list[str] = field(default_factory=list)
    """Files that were damaged or missing, and have been made again from the batches."""
    removed: list[str] = field(default_factory=list)
    """Files after the cut, below the log start, or of no segment."""
    lost_end: bool = False
    """The active segment is missing, or ends below what was synced or written: it is not known how
    much was there. Also where an earlier start found that, see ``lost_end``.
    """
    damages: list[tuple[str, Damage]] = field(default_factory=list)
    """By file: batches below the recovery point that are damaged; kept, never served."""


@contextlib.contextmanager
def telling_of(what: Condition, directory: str) -> Iterator[None]:
    """A disk that fails is told of, and no more."""
    try:
        yield
    except (OSError, Unavailable) as error:
        logger.warning(what, extra={"directory": directory, "problem": str(error)})
