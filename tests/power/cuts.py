"""What a recorded disk has after a power cut."""

import copy
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.power.recorded_disk import SYNCS, Applied, Operation
from tests.simulation.disk import SimDisk


class NothingMore(random.Random):
    """Draws, of all that may have reached the disk, that nothing has but what was synced."""

    def random(self) -> float:
        return 0.0

    def randint(self, a: int, _b: int) -> int:
        return a

    def choice(self, seq: Any) -> Any:
        return seq[0]


class Cut(NamedTuple):
    """The power went after so many operations."""

    operations: int
    at_ns: int
    """When the next one began: all that happened before then is before the cut."""
    disk: SimDisk

    def disk_after(self, seed: int | None) -> SimDisk:
        """With parts of what was not synced, torn and out of order; None: with nothing of it."""
        disk = copy.deepcopy(self.disk)
        disk.rng = NothingMore() if seed is None else random.Random(f"{self.operations} {seed}")
        disk.crash()
        return disk


def cuts(operations: Sequence[Operation], *, from_ns: int = 0) -> Iterator[Cut]:
    """Before and after each sync that began at ``from_ns`` or later. The disk of one is good until the next is asked
    for.
    """
    applied = Applied()
    for number, it in enumerate(operations):
        is_boundary = it.kind in SYNCS or (number and operations[number - 1].kind in SYNCS)
        if is_boundary and it.at_ns >= from_ns:
            yield Cut(number, it.at_ns, applied.disk)
        applied.apply(it)


def write_files(disk: SimDisk, folder: Path) -> None:
    """As a file system would show them."""

    def write(path: str, target: Path) -> None:
        target.mkdir(mode=0o700)
        for name in disk.names(path or "/"):
            below = f"{path}/{name}"
            if disk.has_folder(below):
                write(below, target / name)
            else:
                (target / name).write_bytes(disk.content(below))
                (target / name).chmod(0o600)

    write("", folder)
