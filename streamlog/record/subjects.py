"""Which message has which subject: compiled where it was built, else its plain twin."""

from typing import TYPE_CHECKING

from streamlog.record import fallback
from streamlog.record._subjects_plain import (
    NOTHING,
    SEED_BYTES,
    Total,
    is_pattern,
    matches,
)

if TYPE_CHECKING:
    from streamlog.record._subjects_plain import SubjectIndex
else:
    try:
        from streamlog.record._subjects import SubjectIndex
    except ImportError:
        fallback.warn()
        from streamlog.record._subjects_plain import SubjectIndex

__all__ = ["NOTHING", "SEED_BYTES", "SubjectIndex", "Total", "is_pattern", "matches"]
