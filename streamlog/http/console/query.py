"""What a watcher wants to see: one list, filtered, a page of it. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from streamlog.errors import InvalidRequest
from streamlog.http.console.overview import WANTS as PARTITION_WANTS

LISTS: Final = ("streams", "partitions", "groups", "transactions", "events")
SHOWN: Final = (*LISTS, "summary")
"""What may be watched: one of the lists, or none."""
LED_HERE: Final = "led_here"
WANTS: Final = (*PARTITION_WANTS, LED_HERE)

SORTS: Final = {
    "streams": ("name", "records", "size_bytes", "rate"),
    "groups": ("group", "lag", "members"),
    "transactions": ("started", "name", "partitions"),
}
"""What a list may be sorted by; the first is what it is sorted by unless something else is asked."""
ORDERS: Final = ("asc", "desc")

ROWS: Final = 50
ROWS_MAX: Final = 200
TEXT_MAX: Final = 256
PAGE_MAX: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Query:
    """``only``: one of ``WANTS``, or empty for all; ``stream``: exactly that one, or any."""

    show: str = "streams"
    filter: str = ""
    stream: str = ""
    only: str = ""
    page: int = 0
    size: int = ROWS
    sort: str = ""
    """One of ``SORTS`` of what is shown; empty: by the first of them."""
    descending: bool = False

    @classmethod
    def of(cls, given: Mapping[str, str], *, show: str | None = None) -> Self:
        """From a URL. Raises InvalidRequest, in one line that says what may stand there."""
        shown = show or given.get("show", "streams")
        only = given.get("only", "")
        if shown not in SHOWN:
            raise InvalidRequest(f"show: one of {', '.join(SHOWN)}")
        if only and only not in WANTS:
            raise InvalidRequest(f"only: one of {', '.join(WANTS)}")
        sorts = SORTS.get(shown, ("",))
        sort, order = given.get("sort", ""), given.get("order", "asc")
        if sort and sort not in sorts:
            raise InvalidRequest(f"sort: one of {', '.join(sorts)}")
        if order not in ORDERS:
            raise InvalidRequest("order: asc or desc")
        descending = order == "desc"
        if sort in ("", sorts[0]):
            sort = sorts[0] if descending else ""
        return cls(
            shown,
            _text(given, "filter"),
            _text(given, "stream"),
            only,
            number(given, "page", 0, PAGE_MAX),
            number(given, "size", ROWS, ROWS_MAX, least=1),
            sort,
            descending,
        )


def number(given: Mapping[str, str], name: str, default: int, most: int, *, least: int = 0) -> int:
    """Raises InvalidRequest unless it is one from ``least`` to ``most``."""
    text = given.get(name, str(default))
    if not (text.isascii() and text.isdecimal() and len(text) < 20 and least <= int(text) <= most):
        raise InvalidRequest(f"{name}: a number from {least} to {most}")
    return int(text)


def _text(given: Mapping[str, str], name: str) -> str:
    text = given.get(name, "")
    if len(text) > TEXT_MAX:
        raise InvalidRequest(f"{name}: at most {TEXT_MAX} characters")
    return text
