"""``python -m tests.power``: cut the power of a node at every sync of a recorded run, and look what it has."""

import argparse
import random
import tempfile
from pathlib import Path

from tests.power.campaign import record, strike
from tests.power.recorded_disk import cannot_mount


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument(
        "--steps", type=int, default=60, help="of clients, each of one to three requests"
    )
    parser.add_argument(
        "--torn", type=int, default=1, help="so many times with parts of what was not synced"
    )
    parser.add_argument("--cuts", type=int, help="so many by chance, instead of all")
    parser.add_argument("--folder", type=Path, help="where what failed stays")
    options = parser.parse_args()
    if cannot_mount():
        raise SystemExit(cannot_mount())
    folder = options.folder or Path(tempfile.mkdtemp(prefix="power-"))
    print(f"seed {options.seed}, in {folder}")
    recording = record(folder, seed=options.seed, steps=options.steps)
    print(f"{len(recording.operations)} operations")
    for seed in (None, *range(options.torn)):
        count = strike(recording, folder, seed=seed, cuts_max=options.cuts, told=print)
        print(
            f"{count} cuts, {'nothing more than synced' if seed is None else f'torn {seed}'}: nothing is lost"
        )


if __name__ == "__main__":
    main()
