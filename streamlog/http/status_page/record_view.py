"""A record as the page shows it: cut to what eyes can take. Pure."""

from typing import Any, Final

from streamlog.record.codec import Record

KEY_BYTES_MAX: Final = 256
VALUE_BYTES_MAX: Final = 2_048
HEADERS_MAX: Final = 20
HEADER_BYTES_MAX: Final = 256


def shown(record: Record) -> dict[str, Any]:
    return {
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "key": _data(record.key, KEY_BYTES_MAX),
        "value": _data(record.value, VALUE_BYTES_MAX),
        "headers": [
            [name[:HEADER_BYTES_MAX], _data(value, HEADER_BYTES_MAX)]
            for name, value in record.headers[:HEADERS_MAX]
        ],
        "headers_more": max(0, len(record.headers) - HEADERS_MAX),
    }


def _data(data: bytes | None, most: int) -> dict[str, Any] | None:
    """Text where it is UTF-8, else hexadecimal; with its true length where it was cut."""
    if data is None:
        return None
    cut = bytes(data[:most])
    try:
        # A cut may go through the midst of a character.
        text, form = cut.decode(errors="strict" if len(data) <= most else "ignore"), "text"
        if len(data) > most and len(cut) - len(text.encode()) > 3:
            raise UnicodeError
    except UnicodeError:
        text, form = cut[: most // 2].hex(" "), "hex"
    whole = len(data) <= (most if form == "text" else most // 2)
    return {form: text, "size_bytes": len(data), "cut": not whole}
