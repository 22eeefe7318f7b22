"""Where the cases of ``test_mistakes`` may begin to cost least: ``python -m tests.simulation.shortest_stories``.

A change of the code makes other stories of the same seeds. Then some cases take long to come to one that shows
their mistake. This tells of each case which of the first seeds shows it after the least time.
"""

import argparse
import logging
import os
import re
import sys
import time
from typing import Final

import pytest

from tests.simulation.cluster.loop import let_go
from tests.simulation.seeds import MakeTimed, Player
from tests.simulation.test_mistakes import CASES, Plant

SEEDS_MAX: Final = 400
CPU_S: Final = 30.0
"""For each case."""
UNTIL_S: Final = 6.0
"""Most stories are calm by then. A mistake that keeps all from becoming well shows later."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="of mistakes; by default all")
    parser.add_argument("--cpu-s", type=float, default=CPU_S, help="of each case (%(default)s)")
    parser.add_argument(
        "--until-s", type=float, default=UNTIL_S, help="of each story at most (%(default)s)"
    )
    arguments = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        sys.exit("set PYTHONHASHSEED=0, as `make test` does: stories depend on it")
    logging.getLogger("streamlog").setLevel(logging.CRITICAL)
    for plant, world, seeds, shows in CASES:
        if not arguments.names or plant.__name__ in arguments.names:
            until_us = int(1e6 * arguments.until_s)
            found = shortest(plant, world, shows, until_us, seeds.start, arguments.cpu_s)
            print(f"{plant.__name__} from {seeds.start}: {found}", flush=True)


def shortest(
    plant: Plant, world: MakeTimed, shows: str, until_us: int, first: int, cpu_s: float
) -> str:
    """Once a story shows it, others need not go on for longer than that one."""
    player = Player()
    found = "not seen"
    began = time.process_time()
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        for seed in [first, *range(SEEDS_MAX)]:
            if time.process_time() - began > cpu_s:
                break
            ending = player.ending(world, seed, until_us)
            if re.match(f"seed {seed}: Violation: .*({shows})", ending.problem):
                until_us = ending.time_us
                found = f"seed {seed} shows it after {until_us / 1e6:.3f} s"
    let_go()
    return found


if __name__ == "__main__":
    main()
