"""Dashboards of Grafana as what they ask Prometheus, and as plots of the answers."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).parents[1] / "deploy" / "grafana"
NAMES = ("overview", "nodes", "groups")


class Query(NamedTuple):
    """One curve, or some of one panel."""

    board: str
    panel: str
    unit: str
    expression: str
    legend: str


def board(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return content


def queries() -> Iterator[Query]:
    for name in NAMES:
        for panel in board(name)["panels"]:
            unit = panel.get("fieldConfig", {}).get("defaults", {}).get("unit", "")
            for target in panel.get("targets", ()):
                yield Query(name, panel["title"], unit, target["expr"], target["legendFormat"])


def filled_in(expression: str, *, interval: str = "15s") -> str:
    """With what Grafana would put in place of its variables, everything chosen."""
    for variable, value in (
        ("$__rate_interval", interval),
        ("$job", "streamlog"),
        ("$instance", ".+"),
        ("$group", ".+"),
    ):
        expression = expression.replace(variable, value)
    assert "$" not in expression, expression
    return expression


def legend_of(query: Query, labels: dict[str, str]) -> str:
    return re.sub(r"{{(\w+)}}", lambda it: labels.get(it[1], ""), query.legend) or query.panel


def plot(name: str, answers: dict[Query, list[dict[str, Any]]], path: Path) -> None:
    """As Grafana lays them out, three panels in a row; ``answers``: of query_range."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    panels: dict[str, list[Query]] = {}
    for query in answers:
        if query.board == name:
            panels.setdefault(query.panel, []).append(query)
    rows = -(-len(panels) // 3)
    figure, axes = plt.subplots(rows, 3, figsize=(13, 2.3 * rows), squeeze=False)
    for axis in axes.flat:
        axis.set_visible(False)
    for axis, (title, found) in zip(axes.flat, panels.items(), strict=False):
        axis.set_visible(True)
        axis.set_title(f"{title} ({found[0].unit})", fontsize=9, loc="left")
        for query in found:
            for series in answers[query]:
                begin = float(series["values"][0][0])
                times = [float(at) - begin for at, _ in series["values"]]
                values = [float(value) for _, value in series["values"]]
                axis.plot(times, values, linewidth=1, label=legend_of(query, series["metric"]))
        axis.set_ylim(bottom=0)
        axis.tick_params(labelsize=7)
        if axis.lines:
            axis.legend(fontsize=6, loc="upper left")
    figure.tight_layout()
    figure.savefig(path, dpi=80)
    plt.close(figure)
