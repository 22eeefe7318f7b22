"""The record codec: compiled where it was built, else its plain twin."""

from typing import TYPE_CHECKING

from streamlog.record import fallback
from streamlog.record._codec_plain import Record

if TYPE_CHECKING:
    from streamlog.record._codec_plain import RecordRun, iter_records
else:
    try:
        from streamlog.record._codec import RecordRun, iter_records
    except ImportError:
        fallback.warn()
        from streamlog.record._codec_plain import RecordRun, iter_records

__all__ = ["Record", "RecordRun", "iter_records"]
