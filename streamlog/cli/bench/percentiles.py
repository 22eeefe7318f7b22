"""Of many measurements, those that say most. Pure."""

from collections.abc import Iterable
from math import ceil
from typing import Final

SHOWN: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999, "max": 1.0}


def percentiles(values: Iterable[float]) -> dict[str, float]:
    """By nearest rank: each is one of the values, so many of which are not above it."""
    ordered = sorted(values)
    if not ordered:
        return {}
    return {
        name: ordered[max(0, ceil(round(share * len(ordered), 6)) - 1)]
        for name, share in SHOWN.items()
    }
