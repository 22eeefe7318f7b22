"""Figures as a table on the terminal, as markdown in the README, and as JSON."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any, Final, NamedTuple

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.case import Case, Figures, Metric, Target

BEGIN: Final = "<!-- figures: written by `python -m benchmarks` -->"
END: Final = "<!-- end of figures -->"
BAR_UNITS: Final = 8
"""Length of the bar of a ratio of one."""
BAR_MAX: Final = 28
INDENT: Final = "\N{NO-BREAK SPACE}" * 2
HEADINGS: Final = ("case", "median", "range", "ratio", "server µs/record", "target", "")


class Row(NamedTuple):
    """One line of the table, as text."""

    label: str
    value: str
    spread: str
    ratio: str
    cpu: str
    target: str
    lost: str
    bar: str
    met: bool | None
    """All of its targets; None without one."""


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
        judged = list(judgements(figures, label, metric))
        own = [(target, reached) for target, reached in judged if target.beside is None]
        yield Row(
            label=label,
            value=f"{_number(value, metric)} {metric.unit}",
            spread=spread if len(values) > 1 else "",
            ratio=f"{ratio:.2f}x" if ratio and label != figures.case.yardstick else "",
            cpu=f"{server_us:.2f}" if server_us else "",
            target="; ".join(_told(target, reached) for target, reached in own),
            lost=f"{100 * lost / published:.0f} % lost" if lost else "",
            bar=_bar(ratio, own),
            met=all(target.is_met(reached) for target, reached in own) if own else None,
        )
        for target, reached in judged:
            if target.beside is not None:
                yield _beside(target, reached)


def _beside(target: Target, reached: float) -> Row:
    """A line of its own below the variant's: a ratio to another than the yardstick."""
    return Row(
        label=f"{INDENT}beside {target.beside}",
        value="",
        spread="",
        ratio=f"{reached:.2f}x",
        cpu="",
        target=_told(target, reached),
        lost="",
        bar=_bar(reached, [(target, reached)]),
        met=target.is_met(reached),
    )


def judgements(
    figures: Figures, label: str, metric: Metric | None = None
) -> Iterator[tuple[Target, float]]:
    """The variant's targets and what was reached of each, as far as it was measured."""
    for variant in figures.case.variants:
        if variant.label == label:
            for target in variant.targets:
                reached = figures.reached(label, target)
                if reached is not None and metric in (None, target.metric):
                    yield target, reached


def print_table(console: Console, all_figures: Sequence[Figures]) -> None:
    """The table for people."""
    table = Table(box=box.SIMPLE_HEAD, title="medians; ratios are to the first row of each case")
    for heading in (*HEADINGS, ""):
        right = heading in HEADINGS[1:5]
        table.add_column(heading, justify="right" if right else "left", no_wrap=True)
    for figures in all_figures:
        for metric in figures.case.metrics:
            table.add_row(f"[bold]{figures.case.title}[/]{_direction(metric)}")
            for row in rows(figures, metric):
                colour = {True: "green", False: "yellow", None: "default"}[row.met]
                bar = f"[{colour}]{row.bar}[/]"
                table.add_row(f"  {row.label}", *row[1:7], bar)
            table.add_section()
    console.print(table)


def markdown(all_figures: Sequence[Figures], machine: Mapping[str, str], rounds: str) -> str:
    """The same for the README."""
    lines = [f"Medians of {rounds} interleaved rounds on " + "; ".join(_facts(machine)) + ".", ""]
    lines += ["| " + " | ".join(HEADINGS) + " |", "|---|--:|--:|--:|--:|---|---|"]
    for figures in all_figures:
        for metric in figures.case.metrics:
            lines.append(f"| **{figures.case.title}**{_direction(metric)} | | | | | | |")
            lines += ["| " + " | ".join(row[:7]) + " |" for row in rows(figures, metric)]
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
    """Every measurement of every round, and every run that was void."""
    cases = {figures.case.name: figures.runs for figures in all_figures}
    voids = [void for figures in all_figures for void in figures.voids]
    document = {"machine": dict(machine), "cases": cases, "voids": voids}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n")


def results_file(folder: Path, name: str) -> Path:
    """Named by the day, as all of one day's runs of that name are one."""
    return folder / f"{date.today().isoformat()}-{name}.json"


def read_json(path: Path, cases: Iterable[Case[Any]]) -> list[Figures]:
    """What ``write_json`` wrote of these cases; a case that it does not hold is left out."""
    runs = json.loads(path.read_text())["cases"]
    return [Figures(case, runs[case.name]) for case in cases if case.name in runs]


def _direction(metric: Metric) -> str:
    return " (lower is better)" if metric.lower_is_better else ""


def _told(target: Target, reached: float) -> str:
    sign = "≤" if target.metric.lower_is_better else "≥"
    unit = f" {target.metric.unit.split()[0]}" if target.absolute else "x"
    return f"{'✔' if target.is_met(reached) else '✘'} {sign} {target.bound:g}{unit}"


def _bar(ratio: float | None, judged: Sequence[tuple[Target, float]]) -> str:
    """As long as the ratio, with a mark where the target is; a figure is shown as a share of it."""
    mark = None
    for target, reached in judged[:1]:
        ratio = reached / target.bound if target.absolute else ratio
        mark = 1.0 if target.absolute else target.bound
    cells = ["█"] * min(BAR_MAX, round(BAR_UNITS * (ratio or 0)))
    if mark is not None:
        place = min(BAR_MAX, round(BAR_UNITS * mark))
        cells += [" "] * (place - len(cells))
        cells.insert(place, "┃")
    return "".join(cells)


def _facts(machine: Mapping[str, str]) -> Iterator[str]:
    for name, fact in machine.items():
        yield fact if name in ("processor", "system") else f"{name} {fact}"


def _number(value: float, metric: Metric) -> str:
    if metric.digits or value < 1000:
        return f"{value:,.{metric.digits}f}"
    return f"{round(value, -2):,.0f}" if value >= 10_000 else f"{value:,.0f}"
