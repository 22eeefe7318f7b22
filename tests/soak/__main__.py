"""``python -m tests.soak``: mixed load and faults on three real nodes for hours; does anything grow, or get lost?

Clients of nats-py and confluent-kafka publish and read all the time. A run may be made in pieces: with the same folder
the next one goes on with the data of the last one. The verdict and the plot are of all pieces together.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.soak.plot import draw
from tests.soak.run import FAULTS, Plan, read_samples, run_piece
from tests.soak.verdict import LIFE_S, WARM_UP_S, measures


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--hours", type=float, default=8.0, help="of this piece (default: 8)")
    parser.add_argument("--folder", type=Path, help="of the nodes and samples (default: temporary)")
    parser.add_argument(
        "--rate", type=float, default=200.0, help="messages a second to each stream (default: 200)"
    )
    parser.add_argument(
        "--fault-s", type=float, default=90.0, help="between two faults; 0: none (default: 90)"
    )
    parser.add_argument(
        "--sample-s", type=float, default=15.0, help="between two samples (default: 15)"
    )
    parser.add_argument(
        "--faults",
        default=",".join(FAULTS),
        help=f"comma-separated: {', '.join(FAULTS)} (default: all)",
    )
    parser.add_argument("--seed", type=int, default=0, help="of the faults (default: 0)")
    parser.add_argument(
        "--warm-up-s", type=float, default=WARM_UP_S, help="of a node, not judged (default: 900)"
    )
    parser.add_argument(
        "--judge-only", action="store_true", help="look at the samples of the folder again"
    )
    options = parser.parse_args()
    kinds = tuple(filter(None, options.faults.split(",")))
    if others := set(kinds) - set(FAULTS):
        parser.error(f"no such faults: {', '.join(sorted(others))}; there are {', '.join(FAULTS)}")
    folder = options.folder or Path(tempfile.mkdtemp(prefix="streamlog-soak-"))
    violations: list[str] = []
    if not options.judge_only:
        print(f"in {folder}", flush=True)
        plan = Plan(
            options.hours, options.rate, options.sample_s, options.fault_s, kinds, options.seed
        )
        violations = run_piece(folder, plan, lambda line: print(line, flush=True))
    samples = read_samples(folder)
    if not samples:
        parser.error(f"{folder} has no samples")
    draw(samples, folder / "soak.png")
    found = measures(
        samples, warm_up_s=options.warm_up_s, life_s=min(LIFE_S, 2 * options.warm_up_s)
    )
    print(*found, sep="\n")
    if not found:
        print("no node lived long enough for a verdict on growth")
    print(f"{samples[-1].at_s / 3_600:.2f} hours, {sum(len(it.faults) for it in samples)} faults")
    print("  ".join(f"{name}: {count:,}" for name, count in samples[-1].counts.items()))
    print(f"curves: {folder / 'soak.png'}")
    for it in violations:
        print(f"VIOLATION {it}", file=sys.stderr)
    return 1 if violations or any(it.grows for it in found) else 0


if __name__ == "__main__":
    sys.exit(main())
