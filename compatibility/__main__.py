"""``python -m compatibility``: run the cells, and write the table."""

import argparse
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from compatibility import cells, results, table
from compatibility.checks.catalogue import CHECKS
from compatibility.checks.check import Check
from compatibility.cluster import Cluster
from compatibility.outcome import Failed, Missing, Outcome
from compatibility.peer import Peer, peers
from compatibility.registries import Installed, cache_folder, install
from compatibility.results import Row

COLOURS = {"pass": "green", "fail": "bold red", "not offered": "yellow"}


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that all that was started ends
    options = _parse()
    console = Console(width=None if sys.stdout.isatty() else 190, highlight=False)
    everybody = peers()
    chosen = [it for it in everybody if not options.only or it.name.startswith(tuple(options.only))]
    checks = [it for it in CHECKS if not options.check or it.name.startswith(tuple(options.check))]
    if not chosen or not checks:
        console.print(f"clients: {', '.join(it.name for it in everybody)}")
        console.print(f"checks: {', '.join(it.name for it in CHECKS)}")
        return 2
    ready = _install(console, chosen, options.cache)
    folder = Path(tempfile.mkdtemp(prefix="streamlog-compatibility-"))
    rows = results.read()
    try:
        with Cluster(folder / "nodes") as cluster:
            for peer, installed in ready:
                row = _row(console, peer, installed, rows)
                if row is None:
                    continue
                for check in checks:
                    started = time.monotonic()
                    name = f"{peer.name}-{check.name}"
                    outcome = cells.run_cell(cluster, installed, name, check, folder)
                    row.cells[check.name] = outcome
                    console.print(_line(check, outcome, time.monotonic() - started))
                results.write(rows)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    table.write(everybody, rows)
    console.print(f"written to {table.PAGE.relative_to(table.PAGE.parents[1])}")
    failed = [cell for row in rows.values() for cell in row.cells.values() if cell.kind == "fail"]
    return 1 if failed else 0


def _install(console: Console, chosen: Sequence[Peer], cache: Path) -> list[tuple[Peer, Installed]]:
    """Those whose packages can be had; the others are told of."""
    ready = []
    for peer in chosen:
        console.print(f"packages of {peer.name} …")
        try:
            ready.append((peer, install(peer, cache)))
        except Missing as missing:
            console.print(f"[yellow]{peer.name} is left out:[/] {escape(str(missing))}")
    return ready


def _row(console: Console, peer: Peer, installed: Installed, rows: dict[str, Row]) -> Row | None:
    """What came of the client so far, in this version; None if it does not even tell that."""
    try:
        version = cells.version_of(installed)
    except Failed as failed:
        console.print(f"[yellow]{peer.name} is left out:[/] {escape(str(failed))}")
        return None
    console.print(f"[bold]{peer.title} {version}[/]")
    row = rows.get(peer.name)
    if row is None or row.version != version:
        row = rows[peer.name] = Row(version)
    return row


def _line(check: Check, outcome: Outcome, took_s: float) -> str:
    colour = COLOURS[outcome.kind]
    told = f"[{colour}]{outcome.kind:11}[/] {took_s:4.1f} s  {escape(outcome.reason)}"
    return f"  {check.name:14} {told}"


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m compatibility", description=__doc__)
    parser.add_argument("--only", action="append", metavar="NAME", help="clients by prefix")
    parser.add_argument("--check", action="append", metavar="NAME", help="checks by prefix")
    parser.add_argument(
        "--cache", type=Path, default=cache_folder(), metavar="DIR", help="where packages are kept"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
