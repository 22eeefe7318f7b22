"""``python -m benchmarks.clusters``: three streamlog nodes beside three JetStream servers."""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

from rich.console import Console

from benchmarks import machine, report
from benchmarks.case import Figures
from benchmarks.catalogue import CLUSTERS as CASES
from benchmarks.connection import VOID
from benchmarks.publish import publish
from benchmarks.rounds import measure
from benchmarks.trios import Trios

README: Final = Path(__file__).with_name("README.md")
RESULTS: Final = README.parent / "results"
REPORT_WIDTH: Final = 170


def main() -> int:
    options = _parse()
    console = Console(width=None if sys.stdout.isatty() else REPORT_WIDTH)
    chosen = [
        case for case in CASES if not options.only or case.name.startswith(tuple(options.only))
    ]
    directory = Path(tempfile.mkdtemp(prefix="streamlog-bench-", dir=options.dir))
    facts = machine.describe(directory)
    for case in list(chosen):
        if reason := case.missing():
            console.print(f"not measured: {case.title}: {reason}")
            chosen.remove(case)
    trios = Trios(directory)
    figures: list[Figures] = []
    failure = ""
    try:
        figures.extend(measure(console, trios, chosen, options.rounds, quick=options.quick))
    except VOID as error:
        failure = str(error)
    finally:
        trios.stop()
        if failure and options.keep:
            console.print(f"the servers' folders are in {directory}")
        else:
            shutil.rmtree(directory, ignore_errors=True)
    report.print_table(console, figures)
    results = options.json
    if results is None and not options.quick:
        results = report.results_file(RESULTS, options.name)
    if results is not None:
        report.write_json(results, figures, facts)
        console.print(f"all measurements are in {results}")
    if failure:
        console.print(f"[bold red]void:[/] {failure}")
        return 1
    if results is not None and len(chosen) == len(CASES) and not options.quick:
        publish([results])
        console.print("written to the table that readers see")
    return 0


def _parse() -> argparse.Namespace:
    names = ", ".join(case.name for case in CASES)
    parser = argparse.ArgumentParser(prog="python -m benchmarks.clusters", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--only", action="append", metavar="NAME", help=f"cases by prefix, of {names}"
    )
    parser.add_argument("--name", default="clusters", help="ends the name of the file of results")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="instead of benchmarks/results/DATE-NAME.json"
    )
    parser.add_argument("--dir", type=Path, metavar="DIR", help="where the servers keep their data")
    parser.add_argument("--quick", action="store_true", help="few rounds, a tenth of the load")
    parser.add_argument("--keep", action="store_true", help="keep the folders of a failed run")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
