r"""Bytes as text, and back: keys, values and headers in formats that have only text.

In JSON, bytes that are UTF-8 are a string; others are ``{"base64": "..."}``; null is null. So are they in what
``streamlog consume --json`` prints.

In a cell of CSV, bytes that are UTF-8 are that text; others are ``base64:`` and their base64. Null is ``\N``. Text that
is ``\N`` itself, or begins with ``base64:``, is written as base64, too. So each cell has one meaning.
"""

import base64
import binascii
from typing import Any, Final

from streamlog.errors import InvalidRecord

CELL_NULL: Final = r"\N"
CELL_BASE64: Final = "base64:"
JSON_BASE64: Final = "base64"


def to_json(data: bytes | None) -> str | dict[str, str] | None:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {JSON_BASE64: base64.b64encode(data).decode()}


def of_json(value: Any) -> bytes | None:
    """Raises InvalidRecord."""
    match value:
        case None:
            return None
        case str():
            return value.encode()
        case {"base64": str(text), **others} if not others:
            return _of_base64(text)
    raise InvalidRecord(f'{str(value)[:40]!r} is neither text nor null nor {{"base64": ...}}')


def to_cell(data: bytes | None) -> str:
    if data is None:
        return CELL_NULL
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return CELL_BASE64 + base64.b64encode(data).decode()
    if text == CELL_NULL or text.startswith(CELL_BASE64):
        return CELL_BASE64 + base64.b64encode(data).decode()
    return text


def of_cell(text: str) -> bytes | None:
    """Raises InvalidRecord."""
    if text == CELL_NULL:
        return None
    if text.startswith(CELL_BASE64):
        return _of_base64(text.removeprefix(CELL_BASE64))
    return text.encode()


def _of_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text.encode(), validate=True)
    except (binascii.Error, ValueError):
        raise InvalidRecord(f"{text[:40]!r} is not base64") from None
