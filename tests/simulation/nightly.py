"""``python -m tests.simulation.nightly --hours 8``: new seeds of all worlds for hours, and what they come to.

A story that fails is written to a file, with the command that plays it again, and then made smaller: blows that it does
not need are left out. Each story is played in a process of its own, and all worlds get the same time of the CPU.
"""

import argparse
import json
import logging
import os
import random
import resource
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

from tests.simulation import test_cluster, test_quorum
from tests.simulation.asking_world import AskingWorld
from tests.simulation.cluster.cluster_world import ClusterWorld
from tests.simulation.cluster.cruel import FollowersLag
from tests.simulation.cluster.loop import graveyard
from tests.simulation.cluster.quorum_world import QuorumWorld
from tests.simulation.consumers_world import ConsumersStory, CoordinatorsChange
from tests.simulation.fast_world import FastWorld
from tests.simulation.groups_world import GroupsStory
from tests.simulation.ledger_world import LedgerStory
from tests.simulation.ordering_world import OrderingWorld
from tests.simulation.retention_world import RetentionStory
from tests.simulation.seeds import Make, problem_of
from tests.simulation.shrinking import needed
from tests.simulation.test_metadata import StoreWorld
from tests.simulation.world import World

FOLDER: Final = Path(__file__).parents[2] / "build" / "nightly"
STORY_CPU_MAX_S: Final = 600
"""One that takes longer does not end."""
SEEDS_FROM: Final = 1_000_000
"""Above all seeds of the tests."""

_MADE: Final[list[Make]] = [
    ClusterWorld,
    FollowersLag,
    *(cast(Make, case.values[0]) for case in test_cluster.SWARMS),
    QuorumWorld,
    *(world for world, _ in test_quorum.CRUEL),
    World,
    AskingWorld,
    FastWorld,
    ConsumersStory,
    CoordinatorsChange,
    RetentionStory,
    GroupsStory,
    LedgerStory,
    OrderingWorld,
    StoreWorld,
]
WORLDS: Final = {getattr(make, "__name__", ""): make for make in _MADE}


@dataclass
class Ending:
    """Of one story."""

    problem: str = ""
    logical_s: float = 0.0
    events: int = 0
    cpu_s: float = 0.0
    blows: list[str] = field(default_factory=list)


@dataclass
class Total:
    stories: int = 0
    failed: int = 0
    logical_s: float = 0.0
    events: int = 0
    cpu_s: float = 0.0

    def add(self, ending: Ending) -> None:
        self.stories += 1
        self.failed += bool(ending.problem)
        self.logical_s += ending.logical_s
        self.events += ending.events
        self.cpu_s += ending.cpu_s


def play(make: Make, seed: int, left_out: frozenset[int] = frozenset()) -> Ending:
    """In this process."""
    began = time.process_time()
    with graveyard():
        world: Any = make(seed)
        if left_out:
            world.troubles.is_left_out = lambda number, kind: number in left_out
        problem = problem_of(world, seed)
        ending = Ending(
            problem,
            world.events.now_us / 1e6 if hasattr(world, "events") else 0.0,
            world.events_run,
            time.process_time() - began,
            world.troubles.blows if hasattr(world, "troubles") else [],
        )
        del world
    return ending


def play_apart(make: Make, seed: int, left_out: frozenset[int] = frozenset()) -> Ending:
    """In a fork: the story leaves nothing behind, and has an end."""
    reader, writer = os.pipe()
    process = os.fork()
    if not process:
        try:
            resource.setrlimit(resource.RLIMIT_CPU, (STORY_CPU_MAX_S, STORY_CPU_MAX_S))
            with os.fdopen(writer, "w") as pipe:
                json.dump(vars(play(make, seed, left_out)), pipe)
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    _, status = os.waitpid(process, 0)
    if not text:
        return Ending(f"seed {seed}: the process ended with {os.waitstatus_to_exitcode(status)}")
    return Ending(**json.loads(text))


def smaller(make: Make, seed: int, ending: Ending) -> list[int]:
    """The blows that the failing story needs."""

    def fails(left_out: frozenset[int]) -> bool:
        return bool(play_apart(make, seed, left_out).problem)

    return needed(ending.blows, fails)


def report(make: Make, seed: int, ending: Ending, folder: Path) -> str:
    """Where the failing story is, and how to play the smallest one that fails."""
    folder.mkdir(parents=True, exist_ok=True)
    name = getattr(make, "__name__", "")
    command = f"PYTHONHASHSEED=0 python -m tests.simulation.nightly --play {name} {seed}"
    path = folder / f"{name}-{seed}.txt"
    path.write_text(f"{command}\n{ending.problem}\n")
    if not ending.blows:
        return f"{path}; {command}"
    kept = smaller(make, seed, ending)
    left_out = [number for number in range(len(ending.blows)) if number not in kept]
    if left_out:
        command += f" --without {','.join(map(str, left_out))}"
        again = play_apart(make, seed, frozenset(left_out))
        path.with_suffix(".smaller.txt").write_text(f"{command}\n{again.problem}\n")
    blows = ", ".join(ending.blows[number] for number in kept)
    return f"{path}; {len(kept)} of {len(ending.blows)} blows suffice ({blows}): {command}"


def table(totals: dict[str, Total], hours: float) -> str:
    whole = Total()
    lines = [f"{'':28} {'stories':>8} {'failed':>7} {'logical h':>10} {'events':>12} {'CPU s':>8}"]
    for name, total in totals.items():
        if total.stories:
            lines.append(_row(name, total))
        whole.stories += total.stories
        whole.failed += total.failed
        whole.logical_s += total.logical_s
        whole.events += total.events
        whole.cpu_s += total.cpu_s
    logical_h = whole.logical_s / 3600
    lines += [
        _row("all", whole),
        f"{hours:.2f} hours: {whole.stories / hours:,.0f} stories and {logical_h / hours:.1f} logical hours an hour",
    ]
    return "\n".join(lines)


def _row(name: str, total: Total) -> str:
    return (
        f"{name:28} {total.stories:8,} {total.failed:7,} {total.logical_s / 3600:10.2f}"
        f" {total.events:12,} {total.cpu_s:8,.0f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.nightly", description=__doc__)
    parser.add_argument("worlds", nargs="*", help=f"by default all: {', '.join(WORLDS)}")
    parser.add_argument("--hours", type=float, default=8.0, help="(%(default)s)")
    parser.add_argument("--seed", type=int, help="of the seeds; by default another one each time")
    parser.add_argument(
        "--folder", type=Path, default=FOLDER, help="for stories that fail (%(default)s)"
    )
    parser.add_argument("--play", nargs=2, metavar=("WORLD", "SEED"), help="one story")
    parser.add_argument(
        "--without", default="", metavar="N,N", help="with --play: blows that are left out"
    )
    options = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        parser.error("set PYTHONHASHSEED=0, as `make nightly` does: stories depend on it")
    logging.getLogger("streamlog").setLevel(logging.CRITICAL)
    chosen = [options.play[0]] if options.play else options.worlds
    if unknown := set(chosen) - set(WORLDS):
        parser.error(f"there is no world {', '.join(sorted(unknown))}")
    if options.play:
        left_out = frozenset(int(it) for it in options.without.split(",") if it)
        ending = play(WORLDS[options.play[0]], int(options.play[1]), left_out)
        print(
            ending.problem
            or f"it ends well, after {ending.logical_s:.1f} s and {ending.events} events"
        )
        sys.exit(bool(ending.problem))
    worlds = {name: WORLDS[name] for name in chosen or WORLDS}
    sys.exit(_play_for(worlds, options.hours, options.seed, options.folder))


def _play_for(worlds: dict[str, Make], hours: float, seed: int | None, folder: Path) -> int:
    """The exit code: 1 if a story has failed."""
    seed = random.SystemRandom().randrange(1 << 31) if seed is None else seed
    print(f"seed {seed}, {hours} hours, {len(worlds)} worlds", flush=True)
    totals = {name: Total() for name in worlds}
    rng, began = random.Random(seed), time.monotonic()
    try:
        while time.monotonic() - began < 3600 * hours:
            name = min(worlds, key=lambda it: totals[it].cpu_s)  # the same time for each
            story_seed = rng.randrange(SEEDS_FROM, 1 << 31)
            ending = play_apart(worlds[name], story_seed)
            totals[name].add(ending)
            if ending.problem:
                print(ending.problem.splitlines()[0][:300], flush=True)
                print(report(worlds[name], story_seed, ending, folder), flush=True)
    except KeyboardInterrupt:
        print("interrupted")
    print(table(totals, (time.monotonic() - began) / 3600))
    return int(any(total.failed for total in totals.values()))


if __name__ == "__main__":
    main()
