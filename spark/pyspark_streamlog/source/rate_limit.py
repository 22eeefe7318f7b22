"""A limit shared among partitions. Pure."""

from collections.abc import Mapping
from typing import TypeVar

K = TypeVar("K")


def share(wanted: Mapping[K, int], limit: int) -> dict[K, int]:
    """What each gets of ``limit``: in proportion to what it wants, and all of it if that fits.

    The parts add up to the limit. Who wants anything gets at least one, while there is enough for
    all: a short partition is not starved by a long one.
    """
    total = sum(wanted.values())
    if total <= limit:
        return dict(wanted)
    wanting = [key for key, want in wanted.items() if want > 0]
    parts = dict.fromkeys(wanted, 0)
    for key in wanting[:limit]:
        parts[key] = 1
    left = limit - min(limit, len(wanting))
    unmet = total - len(wanting)
    due = [((wanted[key] - 1) * left, key) for key in wanting] if left else []
    for product, key in due:
        parts[key] += product // unmet
    left -= sum(product // unmet for product, _ in due)
    for _, key in sorted(due, key=lambda it: -(it[0] % unmet))[:left]:
        parts[key] += 1
    return parts
