"""A case: what is measured, on which sides, and what counts as better."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median

from benchmarks.side import Sides

Measurement = Mapping[str, float]
"""What one run gave, by metric; ``server_us`` is the servers' processor time for each record."""


@dataclass(frozen=True)
class Metric:
    """One figure of a run and how it is shown."""

    key: str
    unit: str
    digits: int = 0
    lower_is_better: bool = False


@dataclass(frozen=True)
class Variant:
    """One way to run the case. ``run(sides, scale)``: ``scale`` shrinks the load of a quick run."""

    label: str
    run: Callable[[Sides, float], Measurement]


@dataclass(frozen=True)
class Case:
    """Variants measured in turn; all are compared with the first of ``yardsticks``."""

    name: str
    title: str
    metrics: tuple[Metric, ...]
    variants: tuple[Variant, ...]
    prepare: Callable[[Sides, float], None] = field(default=lambda sides, scale: None)
    clear: Callable[[Sides], None] = field(default=lambda sides: None)

    @property
    def yardstick(self) -> str:
        """The label that the others are compared with."""
        return self.variants[0].label


@dataclass
class Figures:
    """All measurements of one case, by variant, in order of rounds."""

    case: Case
    runs: dict[str, list[Measurement]] = field(default_factory=dict)
    voids: list[str] = field(default_factory=list)
    """Runs that gave no figure and were made again: of what, and why."""

    def add(self, label: str, measurement: Measurement) -> None:
        self.runs.setdefault(label, []).append(measurement)

    def values(self, label: str, key: str) -> list[float]:
        """What each round gave; empty where the variant has no such figure."""
        return [run[key] for run in self.runs.get(label, []) if key in run]

    def median(self, label: str, key: str) -> float | None:
        values = self.values(label, key)
        return median(values) if values else None

    def ratio(self, label: str, key: str) -> float | None:
        """Median beside the yardstick's median."""
        value, yardstick = self.median(label, key), self.median(self.case.yardstick, key)
        return value / yardstick if value and yardstick else None
