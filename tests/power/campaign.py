"""Power cuts of a real node: it works on a recorded disk, and then begins again with what each cut would have left."""

import asyncio
import json
import random
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from tests.power.cuts import cuts, write_files
from tests.power.judge import Lost, judge
from tests.power.recorded_disk import Operation, recorded
from tests.power.workload import Told, node_in, work
from tools.nodes.node_process import NodeProcess
from tools.nodes.server_process import wait_until

MOUNT_S: Final = 20.0
LAST_RUN: Final = "last-run"


class CannotMount(Exception):
    """As in most containers."""


class Recording(NamedTuple):
    """A node's life."""

    node: NodeProcess
    """It has ended."""
    told: Told
    operations: list[Operation]
    ready_ns: int


@contextmanager
def mounted(folder: Path) -> Iterator[Path]:
    """A recorded disk; the record is in the folder afterwards."""
    mount = folder / "mount"
    mount.mkdir(parents=True)
    command = [
        sys.executable,
        "-m",
        "tests.power.recorded_disk",
        str(mount),
        str(folder / "record"),
    ]
    with (folder / "disk.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)

    def is_mounted() -> bool:
        if process.poll() is not None:
            raise CannotMount((folder / "disk.log").read_text()[-500:])
        return mount.is_mount()

    try:
        wait_until(is_mounted, f"{mount} is not mounted", MOUNT_S)
        yield mount
    finally:
        subprocess.run(["umount", "--lazy", str(mount)], check=False)
        try:
            process.wait(MOUNT_S)
        finally:
            process.kill()
            process.wait()


def record(folder: Path, *, seed: int, steps: int) -> Recording:
    with mounted(folder) as mount:
        node = node_in(folder / "node", mount / "data")
        node.start()
        ready_ns = time.monotonic_ns()
        try:
            told = asyncio.run(work(node, seed, steps))
        finally:
            node.kill()
    return Recording(node, told, recorded(folder / "record"), ready_ns)


def _boot_again(last_run: Path) -> None:
    """A node tells by the boot's id whether the machine has stood since it wrote, as after a power cut it has not."""
    try:
        content = json.loads(last_run.read_bytes())
    except (FileNotFoundError, ValueError):  # a disk that lies has an empty one
        return
    last_run.write_text(json.dumps({**content, "boot_id": str(uuid.uuid4())}))


def strike(
    recording: Recording,
    folder: Path,
    *,
    seed: int | None,
    cuts_max: int | None = None,
    told: Callable[[str], None] = lambda _: None,
) -> int:
    """Begin again after each cut, or some of them by chance, once the node was ready. ``seed``: by which parts of what
    was not synced reach the disk; None: none do. Returns how many cuts there were. Raises Lost.
    """
    found = cuts(recording.operations, from_ns=recording.ready_ns)
    numbers = [it.operations for it in found]
    chosen = set(numbers)
    if cuts_max is not None and len(numbers) > cuts_max:
        chosen = set(random.Random(f"cuts {seed}").sample(numbers, cuts_max))
    node = recording.node
    for cut in cuts(recording.operations, from_ns=recording.ready_ns):
        if cut.operations not in chosen:
            continue
        told(f"after {cut.operations} of {len(recording.operations)} operations, seed {seed}")
        root = folder / f"cut-{cut.operations}-{seed}"
        write_files(cut.disk_after(seed), root)
        node.data_dir = root / "data"
        _boot_again(node.data_dir / LAST_RUN)
        node.configure(node.settings)
        try:
            node.start()
            asyncio.run(judge(node, recording.told, cut.at_ns))
        except Exception as error:
            raise Lost(
                f"power cut after {cut.operations} operations, seed {seed}: {root}"
            ) from error
        finally:
            node.kill()
        shutil.rmtree(root)
    return len(chosen)
