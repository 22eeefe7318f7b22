"""A record as one line: its value for eyes, or all of it as JSON."""

import base64
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Protocol


class PrintedRecord(Protocol):
    """What a reader gives."""

    @property
    def offset(self) -> int: ...
    @property
    def timestamp_ms(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]: ...


def json_record(partition: int, record: PrintedRecord) -> dict[str, Any]:
    """Text where the bytes are UTF-8; else ``{"base64": …}``, so that nothing is lost."""
    time = datetime.fromtimestamp(record.timestamp_ms / 1000, UTC).isoformat(
        timespec="milliseconds"
    )
    return {
        "partition": partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "time": time.replace("+00:00", "Z"),
        "key": _text(record.key),
        "value": _text(record.value),
        "headers": [[name, _text(value)] for name, value in record.headers],
    }


def _text(data: bytes | None) -> str | dict[str, str] | None:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
