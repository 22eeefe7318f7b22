"""Time zones by their names, out of the system's files, or else out of the package ``tzdata``."""

from datetime import UTC, datetime
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

from streamlog.ingest.schedules.cron import Offset

NAMES_REMEMBERED: Final = 1_000
"""A publisher may name any, and those that are not there as well."""


@lru_cache(NAMES_REMEMBERED)
def zone_named(name: str) -> Offset | None:
    """None: there is none of that name. ``Local`` is none: each node would take it for another one."""
    if name == "UTC":
        return _utc
    try:
        zone = ZoneInfo(name)
    except (LookupError, ValueError, OSError):
        return None

    def offset(at_s: int) -> int:
        ahead = datetime.fromtimestamp(at_s, UTC).astimezone(zone).utcoffset()
        return 0 if ahead is None else ahead.days * 86_400 + ahead.seconds

    return offset


def _utc(_at_s: int) -> int:
    return 0
