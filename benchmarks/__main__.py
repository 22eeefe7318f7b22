"""``python -m benchmarks``: run the cases and report."""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from benchmarks import machine, report
from benchmarks.case import Figures
from benchmarks.cases import CASES
from benchmarks.connection import BenchmarkError
from benchmarks.rounds import measure
from benchmarks.side import Sides

README = Path(__file__).with_name("README.md")
REPORT_WIDTH = 170


def main() -> int:
    options = _parse()
    console = Console(width=None if sys.stdout.isatty() else REPORT_WIDTH)
    chosen = [
        case for case in CASES if not options.only or case.name.startswith(tuple(options.only))
    ]
    if not chosen:
        console.print(f"no such case; there are {', '.join(case.name for case in CASES)}")
        return 2
    directory = Path(tempfile.mkdtemp(prefix="streamlog-bench-", dir=options.dir))
    facts = machine.describe(directory)
    sides = Sides(directory)
    figures: list[Figures] = []
    failure = ""
    try:
        figures.extend(
            measure(console, sides, chosen, options.rounds, quick=options.quick)
        )  # those before a failure stay
    except BenchmarkError as error:
        failure = str(error)
    finally:
        sides.stop()
        shutil.rmtree(directory, ignore_errors=True)
    report.print_table(console, figures)
    if options.json:
        report.write_json(options.json, figures, facts)
    if failure:
        console.print(f"[bold red]void:[/] {failure}")
        return 1
    if len(chosen) == len(CASES) and not options.quick:
        report.write_section(README, report.markdown(figures, facts, options.rounds))
        console.print(f"written to {README}")
    return 0


def _parse() -> argparse.Namespace:
    names = ", ".join(case.name for case in CASES)
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--only", action="append", metavar="NAME", help=f"cases by prefix, of {names}"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every measurement there")
    parser.add_argument("--dir", type=Path, metavar="DIR", help="where the servers keep their data")
    parser.add_argument("--quick", action="store_true", help="a tenth of the messages")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
