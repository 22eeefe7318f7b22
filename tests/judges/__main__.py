"""``python -m tests.judges``: faults on three real nodes, and a published checker that judges what clients saw."""

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.network import unavailable
from tests.history import Violation
from tests.judges.campaign import Round, run_rounds
from tests.judges.faults import KINDS
from tests.judges.judging import NotLinearizable, Undecided, why_missing


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.judges", description=__doc__)
    parser.add_argument(
        "--minutes", type=float, default=5.0, help="begin no round after so many (default: 5)"
    )
    parser.add_argument(
        "--faults",
        default=",".join(KINDS),
        help=f"comma-separated: {', '.join(KINDS)} (default: all)",
    )
    parser.add_argument("--seed", type=int, default=0, help="of the faults (default: 0)")
    parser.add_argument(
        "--faults-of-a-round", type=int, default=5, help="before it is judged (default: 5)"
    )
    parser.add_argument("--folder", type=Path, help="for histories and nodes (default: temporary)")
    options = parser.parse_args()
    kinds = [kind for kind in options.faults.split(",") if kind]
    if others := set(kinds) - set(KINDS):
        parser.error(f"no such faults: {', '.join(sorted(others))}; there are {', '.join(KINDS)}")
    if reason := why_missing():
        print(f"the judge cannot be built: {reason}", file=sys.stderr)
        return 2
    if "cut" in kinds and (without := unavailable()):
        print(f"nothing is cut: {without}", file=sys.stderr)
    folder = options.folder or Path(tempfile.mkdtemp(prefix="streamlog-judges-"))
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        parser.error(f"{folder} is not empty: what is there is of other nodes")
    deadline = time.monotonic() + 60 * options.minutes
    rounds: list[Round] = []

    def done(one: Round) -> None:
        rounds.append(one)
        print(one, flush=True)

    try:
        asyncio.run(
            run_rounds(
                folder,
                kinds,
                options.seed,
                lambda done: not done or time.monotonic() < deadline,
                faults_of_a_round=options.faults_of_a_round,
                done=done,
            )
        )
    except (NotLinearizable, Undecided, Violation) as error:
        print(error, *error.__notes__, sep="\n", file=sys.stderr)
        return 1
    operations, unknown = sum(it.operations for it in rounds), sum(it.unknown for it in rounds)
    faults = sum(len(it.faults) for it in rounds)
    transactions = sum(it.transactions.transactions for it in rounds)
    print(
        f"{len(rounds)} rounds, {faults} faults: {operations} operations, {unknown} of unknown outcome,"
        f" {transactions} transactions: ok"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
