"""``python -m benchmarks``: run the cases and report."""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from benchmarks import machine, plot, report
from benchmarks.case import Figures
from benchmarks.catalogue import KAFKA, SPARK
from benchmarks.catalogue import NODE as CASES
from benchmarks.connection import VOID
from benchmarks.publish import publish
from benchmarks.rounds import QUICK_SCALE, measure
from benchmarks.side import Sides

README = Path(__file__).with_name("README.md")
RESULTS = README.parent / "results"
REPORT_WIDTH = 190


def main() -> int:
    options = _parse()
    console = Console(width=None if sys.stdout.isatty() else REPORT_WIDTH)
    whole = KAFKA if options.kafka else CASES
    chosen = [
        case
        for case in ((*CASES, *SPARK, *KAFKA) if options.only else whole)
        if (not options.only or case.name.startswith(tuple(options.only)))
        and not case.name.startswith(tuple(options.skip))
    ]
    if not chosen:
        names = ", ".join(case.name for case in (*CASES, *SPARK, *KAFKA))
        console.print(f"no such case; there are {names}")
        return 2
    for case in chosen:
        if reason := case.missing():
            console.print(f"{case.name} cannot be measured: {reason}; --skip leaves it out")
            return 2
    parent = options.dir or Path(tempfile.gettempdir())
    parent.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(parent).free
    for case in chosen:
        if case.disk_bytes * (QUICK_SCALE if options.quick else 1) > free:
            wanted = f"{case.disk_bytes / 1e9:.0f} GB free; --dir names another disk"
            console.print(f"{case.name} wants {wanted}, --skip {case.name} leaves it out")
            return 2
    directory = Path(tempfile.mkdtemp(prefix="streamlog-bench-", dir=parent))
    facts = machine.describe(directory)
    sides = Sides(directory)
    figures: list[Figures] = []
    failure = ""
    try:
        figures.extend(
            measure(console, sides, chosen, options.rounds, quick=options.quick)
        )  # those before a failure stay
    except VOID as error:
        failure = str(error)
    finally:
        sides.stop()
        shutil.rmtree(directory, ignore_errors=True)
    report.print_table(console, figures)
    results = options.json
    if results is None and not options.quick:
        results = report.results_file(RESULTS, options.name)
    if results is not None:
        report.write_json(results, figures, facts)
        plot.draw(figures, results.with_suffix(".png"))
        console.print(f"all measurements are in {results}")
    if failure:
        console.print(f"[bold red]void:[/] {failure}")
        return 1
    if results is not None and len(chosen) == len(whole) and not options.quick:
        publish([results])
        console.print("written to the tables and the chart that readers see")
    return 0


def _parse() -> argparse.Namespace:
    names = ", ".join(case.name for case in (*CASES, *SPARK, *KAFKA))
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--only", action="append", metavar="NAME", help=f"cases by prefix, of {names}"
    )
    parser.add_argument(
        "--skip", action="append", default=[], metavar="NAME", help="not these, by prefix"
    )
    parser.add_argument(
        "--kafka", action="store_true", help="one node beside Apache Kafka, which comes from Maven"
    )
    parser.add_argument("--name", default="figures", help="ends the name of the file of results")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="instead of benchmarks/results/DATE-NAME.json"
    )
    parser.add_argument("--dir", type=Path, metavar="DIR", help="where the servers keep their data")
    parser.add_argument("--quick", action="store_true", help="a tenth of the messages")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
