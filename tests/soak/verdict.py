"""Whether something grew: a soak's samples in, a table of measures out. Pure.

A measure is looked at in one life of a process at a time, from ``WARM_UP_S`` after its start on: before that caches
fill, and retention has not begun. Its growth is the slope of Theil and Sen, the median of the slopes between samples,
which a few odd ones do not move. It *grows* if two things hold: the slope is above the measure's limit, and the last
quarter is above the first one by more than its noise. A life that is shorter than ``LIFE_S`` after its warm-up says
nothing.
"""

import random
from collections.abc import Sequence
from statistics import median
from typing import Final, NamedTuple

from tests.soak.samples import Sample

WARM_UP_S: Final = 900.0
LIFE_S: Final = 1_800.0
PAIRS_MAX: Final = 20_000
"""Slopes that are looked at; of more samples some pairs are drawn."""
LATENCY: Final = ("p50_ms", "p99_ms")
LIMITS_PER_HOUR: Final = {
    "resident_mib": 2.0,
    "open_files": 4.0,
    "threads": 0.5,
    "files": 20.0,
    "disk_mib": 4.0,
}
"""What a measure may grow by in an hour, for the steps in which it moves anyway: an allocator takes MiB from the kernel
and gives few back, a segment comes and goes."""
SLOWER: Final = 1.5
"""The last quarter's latency may be so many times the first one's."""


class Measure(NamedTuple):
    """One measure of one life of a node, or a latency of the whole soak."""

    name: str
    node: int
    """0: the cluster."""
    hours: float
    """How long it was looked at."""
    first: float
    """The median of its first quarter."""
    last: float
    per_hour: float
    limit: float
    grows: bool

    def __str__(self) -> str:
        where = f"node {self.node}" if self.node else "cluster"
        told = "GROWS" if self.grows else "level"
        return (
            f"{where:8} {self.name:14} {self.hours:5.1f} h  {self.first:9.2f} -> {self.last:9.2f}"
            f"  {self.per_hour:+8.2f} an hour (limit {self.limit:g})  {told}"
        )


def measures(
    samples: Sequence[Sample], *, warm_up_s: float = WARM_UP_S, life_s: float = LIFE_S
) -> list[Measure]:
    """Of the lives that are long enough."""
    found: list[Measure] = []
    for node, life in _lives(samples):
        late = [it for it in life if it[0] >= life[0][0] + warm_up_s]
        if not late or late[-1][0] - late[0][0] < life_s:
            continue
        for name, limit in LIMITS_PER_HOUR.items():
            points = [(at, float(getattr(it.nodes[node], name))) for at, it in late]
            found.append(_grown(name, node, points, limit))
    for name in LATENCY:
        points = [
            (it.at_s, value)
            for it in samples
            if (value := getattr(it, name)) is not None and it.at_s >= warm_up_s
        ]
        if points and points[-1][0] - points[0][0] >= life_s:
            found.append(_slower(name, points))
    return found


def _lives(samples: Sequence[Sample]) -> list[tuple[int, list[tuple[float, Sample]]]]:
    lives: dict[tuple[int, int, int], list[tuple[float, Sample]]] = {}
    for sample in samples:
        for node, it in sample.nodes.items():
            lives.setdefault((node, sample.piece, it.pid), []).append((sample.at_s, sample))
    return [(node, life) for (node, _, _), life in sorted(lives.items())]


def _grown(name: str, node: int, points: Sequence[tuple[float, float]], limit: float) -> Measure:
    first, last, noise = _ends(points)
    per_hour = 3_600 * theil_sen(points)
    grows = per_hour > limit and last - first > noise
    return Measure(name, node, _hours(points), first, last, per_hour, limit, grows)


def _slower(name: str, points: Sequence[tuple[float, float]]) -> Measure:
    first, last, noise = _ends(points)
    per_hour = 3_600 * theil_sen(points)
    limit = SLOWER * first
    grows = last > limit and last - first > noise
    return Measure(name, 0, _hours(points), first, last, per_hour, limit, grows)


def _ends(points: Sequence[tuple[float, float]]) -> tuple[float, float, float]:
    """The medians of the first and the last quarter, and how far values of a quarter lie from its median."""
    count = max(1, len(points) // 4)
    quarters = [[value for _, value in part] for part in (points[:count], points[-count:])]
    middles = [median(it) for it in quarters]
    noise = max(
        median(abs(value - middle) for value in it)
        for it, middle in zip(quarters, middles, strict=True)
    )
    return middles[0], middles[1], noise


def _hours(points: Sequence[tuple[float, float]]) -> float:
    return (points[-1][0] - points[0][0]) / 3_600


def theil_sen(points: Sequence[tuple[float, float]]) -> float:
    """The median slope between two points, in units a second. 0 for fewer than two moments."""
    count = len(points)
    if count * (count - 1) // 2 <= PAIRS_MAX:
        pairs = [(i, j) for i in range(count) for j in range(i + 1, count)]
    else:
        drawn = random.Random(count)
        pairs = [(drawn.randrange(count), drawn.randrange(count)) for _ in range(PAIRS_MAX)]
    slopes = [
        (points[j][1] - points[i][1]) / (points[j][0] - points[i][0])
        for i, j in pairs
        if points[j][0] != points[i][0]
    ]
    return median(slopes) if slopes else 0.0
