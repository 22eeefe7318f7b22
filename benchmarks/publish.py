"""``python -m benchmarks.publish FILE...``: the tables and the charts that readers see.

Out of files of results; of a case that several of them hold, the last one's counts.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks import catalogue, plot, report
from benchmarks.case import Case, Figures

README: Final = Path(__file__).with_name("README.md")
FRONT: Final = README.parents[1] / "README.md"
FRONT_BEGIN: Final = "<!-- chart: written by `python -m benchmarks` -->"
FRONT_END: Final = "<!-- end of chart -->"
CLUSTERS_BEGIN: Final = "<!-- clusters: written by `python -m benchmarks.clusters` -->"
CLUSTERS_END: Final = "<!-- end of clusters -->"
KAFKA_BEGIN: Final = "<!-- kafka: written by `python -m benchmarks --kafka` -->"
KAFKA_END: Final = "<!-- end of kafka -->"
SPARK_BEGIN: Final = "<!-- spark: written by `python -m benchmarks.publish` -->"
SPARK_END: Final = "<!-- end of spark -->"
FRONT_CHART: Final = "[![Ratios to others](benchmarks/results/ratios.png)](benchmarks/README.md)"
CHART: Final = (
    "Each bar is a ratio, each mark what is aimed at.\n\n![Ratios](results/ratios.png)\n\n"
)


class Measured(NamedTuple):
    """A case, and the machine that it was measured on."""

    figures: Figures
    machine: Mapping[str, str]


def read(files: Sequence[Path], cases: Sequence[Case[Any]]) -> list[Measured]:
    """In the order of ``cases``. A file of another program's figures, which has none, adds nothing."""
    newest = {
        figures.case.name: Measured(figures, json.loads(path.read_text())["machine"])
        for path in files
        if "cases" in json.loads(path.read_text())
        for figures in report.read_json(path, cases)
    }
    return [newest[case.name] for case in cases if case.name in newest]


def tables(measured: Sequence[Measured]) -> str:
    """One for each kind of machine, under the facts of its first file."""
    kinds: dict[str, list[Measured]] = {}
    for it in measured:
        kinds.setdefault(it.machine["processor"], []).append(it)
    parts = []
    for group in kinds.values():
        all_figures = [it.figures for it in group]
        parts.append(report.markdown(all_figures, group[0].machine, rounds(all_figures)))
    return "\n\n".join(parts)


def rounds(all_figures: Sequence[Figures]) -> str:
    """How many most of them had: ``5``, or ``3 to 5``."""
    counts = [
        max(map(len, it.runs.values()), default=0) for it in all_figures if not it.case.rounds
    ]
    low, high = min(counts, default=1), max(counts, default=1)
    return f"{low}" if low == high else f"{low} to {high}"


def publish(files: Sequence[Path], readme: Path = README, front: Path = FRONT) -> None:
    """Rewrite what the files have something of."""
    node, clusters = read(files, catalogue.NODE), read(files, catalogue.CLUSTERS)
    spark, kafka = read(files, catalogue.SPARK), read(files, catalogue.KAFKA)
    plot.draw([it.figures for it in (*node, *clusters)], plot.CHART)
    if node:
        report.write_section(readme, CHART + tables(node))
        report.write_section(front, FRONT_CHART, FRONT_BEGIN, FRONT_END)
    if clusters:
        report.write_section(readme, tables(clusters), CLUSTERS_BEGIN, CLUSTERS_END)
    if kafka:
        report.write_section(readme, tables(kafka), KAFKA_BEGIN, KAFKA_END)
    if spark:
        report.write_section(readme, tables(spark), SPARK_BEGIN, SPARK_END)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.publish", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="of benchmarks/results")
    publish(parser.parse_args().files)
    print(f"written to {README}, {FRONT} and {plot.CHART}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
