"""What may stand in ListOffsets (2) in place of a time, and of an offset."""

from typing import Final

LATEST: Final = -1
"""Where the next record will be, as far as consumers see."""
EARLIEST: Final = -2
"""The log's start."""
MAX_TIMESTAMP: Final = -3
"""The record with the latest time (KIP-734)."""
NOT_FOUND: Final = -1
"""As an offset in the answer."""
