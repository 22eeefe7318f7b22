"""Limits, and the form of the result, that both column decoders share."""

from typing import Any, Final

UNCOMPRESSED_BYTES_MAX: Final = 256 << 20
"""The most that one compressed batch may open to; more is taken for a bomb."""

DATA_BYTES_MAX: Final = 64 << 20
"""Rows are handed out before they pass this. Even with one record of the size above, each of its
bytes replaced by three, the int32 offsets of Arrow's columns cannot overflow."""

ROW_BYTES: Final = 16
"""What a row, or a header of a row, counts for beside its keys and values."""

TIMESTAMP_MS_MAX: Final = (2**63 - 1) // 1000
"""Arrow counts microseconds."""

Part = tuple[int, Any, Any, Any]
"""A column: null count, validity bitmap, int32 offsets (None where the type has none), data."""
