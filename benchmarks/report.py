"""Figures as a table on the terminal, as markdown in the README, and as JSON."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.case import Figures, Metric

BEGIN: Final = "<!-- figures: written by `python -m benchmarks` -->"
END: Final = "<!-- end of figures -->"
BAR_UNITS: Final = 8
"""Length of the bar of a ratio of one."""
BAR_MAX: Final = 32


class Row(NamedTuple):
    """One line of the table, as text."""

    label: str
    value: str
    spread: str
    ratio: str
    cpu: str
    lost: str
    bar: str


def rows(figures: Figures, metric: Metric) -> Iterator[Row]:
    """A row for each variant that was run."""
    for label in figures.runs:
        value = figures.value(label, metric)
        if value is None:
            continue
        values = figures.values(label, metric.key)
        spread = f"{_number(min(values), metric)}-{_number(max(values), metric)}"
        ratio = figures.ratio(label, metric)
        server_us = figures.median(label, "server_us")
        lost = sum(figures.values(label, "lost"))
        published = sum(figures.values(label, "messages")) if lost else 1.0
        yield Row(
            label=label,
            value=f"{_number(value, metric)} {metric.unit}",
            spread=spread if len(values) > 1 else "",
            ratio=f"{ratio:.2f}x" if ratio and label != figures.case.yardstick else "",
            cpu=f"{server_us:.2f}" if server_us else "",
            lost=f"{100 * lost / published:.0f} % lost" if lost else "",
            bar="█" * min(BAR_MAX, round(BAR_UNITS * (ratio or 0))),
        )


def print_table(console: Console, all_figures: Sequence[Figures]) -> None:
    """The table for people."""
    table = Table(box=box.SIMPLE_HEAD, title="medians; ratios are to the first row of each case")
    for heading in ("case", "median", "range", "ratio", "server µs", "", ""):
        right = heading in ("median", "range", "ratio", "server µs")
        table.add_column(heading, justify="right" if right else "left", no_wrap=True)
    for figures in all_figures:
        for metric in figures.case.metrics:
            note = " (lower is better)" if metric.lower_is_better else ""
            table.add_row(f"[bold]{figures.case.title}[/]{note}")
            for row in rows(figures, metric):
                table.add_row(f"  {row.label}", *row[1:])
            table.add_section()
    console.print(table)


def markdown(all_figures: Sequence[Figures], machine: Mapping[str, str], rounds: int) -> str:
    """The same for the README."""
    lines = [f"Medians of {rounds} interleaved rounds on " + "; ".join(_facts(machine)) + ".", ""]
    lines += ["| case | median | range | ratio | server µs/record | |", "|---|--:|--:|--:|--:|---|"]
    for figures in all_figures:
        for metric in figures.case.metrics:
            note = " (lower is better)" if metric.lower_is_better else ""
            lines.append(f"| **{figures.case.title}**{note} | | | | | |")
            for row in rows(figures, metric):
                cells = (row.label, row.value, row.spread, row.ratio, row.cpu, row.lost)
                lines.append("| " + " | ".join(cells) + " |")
    voids = [void for figures in all_figures for void in figures.voids]
    if voids:
        lines += ["", "Void, and run again:", "", *(f"- {void}" for void in voids)]
    return "\n".join(lines)


def write_section(path: Path, text: str, begin: str = BEGIN, end: str = END) -> None:
    """Replace what is between the marks."""
    before, _, rest = path.read_text().partition(begin)
    _, _, after = rest.partition(end)
    path.write_text(f"{before}{begin}\n\n{text}\n\n{end}{after}")


def write_json(path: Path, all_figures: Sequence[Figures], machine: Mapping[str, str]) -> None:
    """Every measurement of every round."""
    cases = {figures.case.name: figures.runs for figures in all_figures}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"machine": dict(machine), "cases": cases}, indent=1) + "\n")


def _facts(machine: Mapping[str, str]) -> Iterator[str]:
    for name, fact in machine.items():
        yield fact if name in ("processor", "system") else f"{name} {fact}"


def _number(value: float, metric: Metric) -> str:
    if metric.digits or value < 1000:
        return f"{value:,.{metric.digits}f}"
    return f"{round(value, -2):,.0f}" if value >= 10_000 else f"{value:,.0f}"
