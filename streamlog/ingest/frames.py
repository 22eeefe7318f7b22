"""The frame parser: compiled where it was built, else its plain twin."""

from typing import TYPE_CHECKING

from streamlog.record import fallback

if TYPE_CHECKING:
    from streamlog.ingest._frames_plain import FrameParser, Inflow
else:
    try:
        from streamlog.ingest._frames import FrameParser, Inflow
    except ImportError:
        fallback.warn()
        from streamlog.ingest._frames_plain import FrameParser, Inflow

__all__ = ["FrameParser", "Inflow"]
