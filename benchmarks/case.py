"""A case: what is measured, on which sides, and what counts as better."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import ceil
from statistics import median
from typing import Any, Generic, TypeVar

Servers = TypeVar("Servers")
"""What the runs of a case are given: the servers under test."""

Measurement = Mapping[str, float]
"""What one run gave, by metric; ``server_us`` is the servers' processor time for each record."""


@dataclass(frozen=True)
class Metric:
    """One figure of a run and how it is shown."""

    key: str
    unit: str
    digits: int = 0
    lower_is_better: bool = False
    quantile: float = 0.5
    """Of all rounds, this one is reported: by default the median."""


@dataclass(frozen=True)
class Target:
    """What is wanted: a ratio of at least ``bound``, or of at most so much where lower is better.

    With ``absolute`` it is the figure itself that is compared.
    """

    metric: Metric
    bound: float
    beside: str | None = None
    """The label of the variant that the ratio is to, if not the yardstick's."""
    absolute: bool = False

    def is_met(self, reached: float) -> bool:
        return reached <= self.bound if self.metric.lower_is_better else reached >= self.bound


@dataclass(frozen=True)
class Variant(Generic[Servers]):
    """One way to run the case. ``scale`` shrinks the load of a quick run."""

    label: str
    run: Callable[[Servers, float], Measurement]
    targets: tuple[Target, ...] = ()


@dataclass(frozen=True)
class Case(Generic[Servers]):
    """Variants measured in turn; all are compared with the first of ``yardsticks``."""

    name: str
    title: str
    metrics: tuple[Metric, ...]
    variants: tuple[Variant[Servers], ...]
    prepare: Callable[[Servers, float], None] = field(default=lambda servers, scale: None)
    clear: Callable[[Servers], None] = field(default=lambda servers: None)
    rounds: int | None = None
    """Where so many tell more than as many as the others have."""
    missing: Callable[[], str] = field(default=lambda: "")
    """What it needs and is not here; empty where it can be measured."""
    disk_bytes: int = 0
    """Free on the disk before it begins, where that is very much."""

    @property
    def yardstick(self) -> str:
        """The label that the others are compared with."""
        return self.variants[0].label


@dataclass
class Figures:
    """All measurements of one case, by variant, in order of rounds."""

    case: Case[Any]
    runs: dict[str, list[Measurement]] = field(default_factory=dict)
    voids: list[str] = field(default_factory=list)
    """Runs that gave no figure and were made again: of what, and why."""

    def add(self, label: str, measurement: Measurement) -> None:
        self.runs.setdefault(label, []).append(measurement)

    def values(self, label: str, key: str) -> list[float]:
        """What each round gave; empty where the variant has no such figure."""
        return [run[key] for run in self.runs.get(label, []) if key in run]

    def value(self, label: str, metric: Metric) -> float | None:
        """The metric's quantile over all rounds, by nearest rank; a median is the usual one."""
        values = sorted(self.values(label, metric.key))
        if not values:
            return None
        if metric.quantile == 0.5:
            return median(values)
        return values[max(0, ceil(metric.quantile * len(values)) - 1)]

    def median(self, label: str, key: str) -> float | None:
        values = self.values(label, key)
        return median(values) if values else None

    def ratio(self, label: str, metric: Metric, beside: str | None = None) -> float | None:
        """To the yardstick's figure, or to that of ``beside``."""
        value = self.value(label, metric)
        other = self.value(beside or self.case.yardstick, metric)
        return value / other if value and other else None

    def reached(self, label: str, target: Target) -> float | None:
        """What is compared with the target's bound."""
        if target.absolute:
            return self.value(label, target.metric)
        return self.ratio(label, target.metric, target.beside)
