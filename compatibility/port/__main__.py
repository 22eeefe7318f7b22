"""``python -m compatibility.port``: run the cells, and write the table."""

import argparse
import signal
import sys
import tempfile
from pathlib import Path

from compatibility import cells, results
from compatibility.outcome import Failed, Missing
from compatibility.peer import peers
from compatibility.port import page
from compatibility.port.checks import CHECKS, Scene
from compatibility.registries import cache_folder, install
from compatibility.results import Row


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that all that was started ends
    parser = argparse.ArgumentParser(prog="python -m compatibility.port", description=__doc__)
    parser.add_argument("--only", action="append", metavar="NAME", help="clients by prefix")
    parser.add_argument("--check", action="append", metavar="NAME", help="checks by prefix")
    options = parser.parse_args()
    everybody = peers("nats")
    chosen = [it for it in everybody if not options.only or it.name.startswith(tuple(options.only))]
    checks = [it for it in CHECKS if not options.check or it.name.startswith(tuple(options.check))]
    rows, failed = results.read(page.RESULTS), False
    with Scene(Path(tempfile.mkdtemp(prefix="streamlog-port-"))) as scene:
        for peer in chosen:
            try:
                installed = install(peer, cache_folder())
                version = cells.version_of(installed)
            except (Missing, Failed) as reason:
                print(f"{peer.name} is left out: {reason}")
                continue
            print(f"{peer.title} {version}")
            row = rows.get(peer.name)
            if row is None or row.version != version:
                row = rows[peer.name] = Row(version)
            for check in checks:
                outcome = scene.run(installed, f"{peer.name}-{check.name}", check)
                row.cells[check.name] = outcome
                failed |= outcome.kind == "fail"
                print(f"  {check.name:14} {outcome.kind:11} {outcome.reason}", flush=True)
            results.write(rows, page.RESULTS)
    page.write(everybody, rows)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
