"""Limits, and the form of the result, that both column decoders share."""

from typing import Any, Final

DATA_BYTES_MAX: Final = 64 << 20
"""Rows are handed out before they pass this. Even with one record as large as a batch may
open to, each of its bytes replaced by three, the int32 offsets of Arrow's columns cannot
overflow."""

ROW_BYTES: Final = 16
"""What a row, or a header of a row, counts for beside its keys and values."""

TIMESTAMP_MS_MAX: Final = (2**63 - 1) // 1000
"""Arrow counts microseconds."""

Part = tuple[int, Any, Any, Any]
"""A column: null count, validity bitmap, int32 offsets (None where the type has none), data."""
