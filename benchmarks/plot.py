"""A chart of all ratios that have a target.

A bar begins at 1: as fast as the other, or exactly what is allowed. The scale is logarithmic, so
that twice as fast and half as fast are as far from it. The mark is the target.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks import report
from benchmarks.case import Figures, Target

CHART: Final = Path(__file__).parent / "results" / "ratios.png"
MET: Final = "#5b8db8"
MISSED: Final = "#d9a05b"
INK: Final = "#333333"
PALE: Final = "#8a8a8a"
MORE: Final = "Beside the other: further right is better; the mark is the target"
LESS: Final = "Beside the other, or beside what is allowed: further left is better"
ROW_INCHES: Final = 0.26
PANEL_INCHES: Final = 0.7
"""Its title and its scale."""
WIDTH_INCHES: Final = 9.5
DPI: Final = 150
TICKS: Final = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200)


class Bar(NamedTuple):
    """One target of one variant."""

    case: str
    label: str
    ratio: float
    target: float
    text: str
    lower_is_better: bool
    met: bool


def bars(all_figures: Sequence[Figures]) -> Iterator[Bar]:
    """Of everything that was measured and has a target."""
    for figures in all_figures:
        for variant in figures.case.variants:
            for target, reached in report.judgements(figures, variant.label):
                yield _bar(figures.case.title, variant.label, target, reached)


def _bar(case: str, label: str, target: Target, reached: float) -> Bar:
    metric = target.metric
    label, met = label.removeprefix("streamlog, "), target.is_met(reached)
    unit, _, quantile = metric.unit.partition(", ")
    if quantile:
        label = f"{label}, {quantile}"
    if target.absolute:
        text = f"{reached:,.{metric.digits}f} {unit}, allowed {target.bound:g}"
        return Bar(case, label, reached / target.bound, 1.0, text, metric.lower_is_better, met)
    text = f"{reached:.2f}x" + (f" of {target.beside}" if target.beside else "")
    return Bar(case, label, reached, target.bound, text, metric.lower_is_better, met)


def draw(all_figures: Sequence[Figures], path: Path) -> None:
    """Two panels: where more is better, and where less is; none where nothing has a target."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print("no chart: matplotlib is missing; pip install '.[dev]'", file=sys.stderr)
        return

    found = list(bars(all_figures))
    split = (
        (MORE, [bar for bar in found if not bar.lower_is_better]),
        (LESS, [bar for bar in found if bar.lower_is_better]),
    )
    panels = [(title, chosen) for title, chosen in split if chosen]
    if not panels:
        return
    heights = [ROW_INCHES * _rows(chosen) + PANEL_INCHES for _, chosen in panels]
    figure = Figure(figsize=(WIDTH_INCHES, sum(heights)), dpi=DPI, layout="constrained")
    axes = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axis, (title, chosen) in zip(axes, panels, strict=True):
        _draw_panel(axis, title, chosen)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, facecolor="white", metadata={"Software": None})


def _rows(chosen: Sequence[Bar]) -> int:
    """A case's heading takes a row."""
    return len(chosen) + len({bar.case for bar in chosen})


def _draw_panel(axis: Any, title: str, chosen: Sequence[Bar]) -> None:
    places, headings = _places(chosen)
    axis.set_xscale("log")
    low = min(min(bar.ratio, bar.target) for bar in chosen)
    high = max(max(bar.ratio, bar.target) for bar in chosen)
    axis.set_xlim(min(0.45, low / 1.3), max(2.2, high) * 4)
    for place, heading in headings:
        axis.annotate(
            heading,
            (0, place),
            xycoords=("axes fraction", "data"),
            xytext=(4, -2),
            textcoords="offset points",
            va="center",
            fontsize=8.5,
            weight="bold",
            color=INK,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5},
            zorder=6,
        )
    for place, bar in zip(places, chosen, strict=True):
        colour = MET if bar.met else MISSED
        axis.barh(place, bar.ratio - 1, left=1, height=0.62, color=colour, zorder=2)
        axis.annotate(
            bar.text, (max(bar.ratio, bar.target, 1.0), place), xytext=(8, 0),
            textcoords="offset points", va="center", fontsize=8.5, color=INK, zorder=5,
        )  # fmt: skip
    marks = [bar.target for bar in chosen]
    axis.scatter(marks, places, marker="|", s=210, linewidths=2.2, color=INK, zorder=4)
    axis.axvline(1, color=PALE, linewidth=1, zorder=3)
    axis.set_yticks(places, [bar.label for bar in chosen])
    axis.set_ylim(_rows(chosen) - 0.4, -0.7)
    axis.set_title(title, loc="left", fontsize=10, color=INK)
    _style(axis)


def _places(chosen: Sequence[Bar]) -> tuple[list[int], list[tuple[int, str]]]:
    """Where each bar lies, and each heading."""
    places: list[int] = []
    headings: list[tuple[int, str]] = []
    for bar in chosen:
        if not headings or headings[-1][1] != bar.case:
            headings.append((len(places) + len(headings), bar.case))
        places.append(len(places) + len(headings))
    return places, headings


def _style(axis: Any) -> None:
    left, right = axis.get_xlim()
    shown = [tick for tick in TICKS if left <= tick <= right]
    axis.set_xticks(shown, [f"{tick:g}x" for tick in shown])
    axis.set_xticks([], minor=True)
    axis.tick_params(labelsize=8.5, colors=INK, length=0)
    axis.grid(axis="x", color="#e8e8e8", zorder=0)
    for side in axis.spines.values():
        side.set_visible(False)
