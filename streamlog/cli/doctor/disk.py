"""The disk of the data folder: room, and how long a sync takes. Its own file is removed."""

import os
import secrets
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Final

from streamlog.condition import CRITICAL, MAKE_ROOM, REPAIR_DISK, WARNING, Condition, Severity
from streamlog.findings import Finding
from streamlog.metadata.nodes.node_condition import DISK_FULL

AREA: Final = "disk"
SYNCS: Final = 30
WRITE_BYTES: Final = 4096
SLOW_SYNC_S: Final = 0.020
VERY_SLOW_SYNC_S: Final = 0.200
FREE_SHARE_MIN: Final = 0.10
NOT_FOR_LOGS: Final = {
    "tmpfs": "it is memory: a restart of the machine loses everything",
    "nfs": "its locks and syncs are not a local disk's",
    "nfs4": "its locks and syncs are not a local disk's",
    "cifs": "its locks and syncs are not a local disk's",
    "overlay": "it goes with the container",
}

DISK_FILLS_UP: Final = Condition(
    "SL-0323",
    "disk fills up",
    MAKE_ROOM,
    meaning="Less than a tenth of the disk is free, or it will be full within six hours.",
    runbook="runbooks/full-disk.md",
)
SYNCS_SLOW: Final = Condition(
    "SL-0324",
    "fdatasync is slow",
    "acks wait for it: use a disk that keeps its promises faster (NVMe with power-loss protection),"
    " or let nothing else write to it",
    meaning="Each acknowledgement waits for a sync of the disk.",
)
DATA_DIR_NOT_WRITABLE: Final = Condition(
    "SL-0819",
    "node.data_dir cannot be written",
    "chown {folder} to the user that runs the node",
    meaning="The node does not start.",
    severity=CRITICAL,
)
FILE_SYSTEM_UNFIT: Final = Condition(
    "SL-0820",
    "node.data_dir is on a file system that is not for logs",
    "mount a local disk there, and name it as node.data_dir",
    meaning="Memory, network file systems and a container's own layer do not keep what was synced.",
)
DISK_REFUSES: Final = Condition(
    "SL-0821",
    "the disk refuses a write",
    REPAIR_DISK,
    meaning="A file in node.data_dir could not be written or synced.",
    severity=CRITICAL,
)


def examine(data_dir: Path, metadata_reserve_bytes: int) -> Iterator[Finding]:
    """``metadata_reserve_bytes``: with less room than that a node takes its disk for full."""
    folder = _existing(data_dir)
    if not os.access(folder, os.W_OK):
        said = f"{folder} cannot be written by this user"
        yield Finding.of(DATA_DIR_NOT_WRITABLE, AREA, said, folder=folder)
        return
    yield _room(folder, metadata_reserve_bytes)
    kind = file_system(folder)
    if kind in NOT_FOR_LOGS:
        yield Finding.of(FILE_SYSTEM_UNFIT, AREA, f"{folder} is on {kind}: {NOT_FOR_LOGS[kind]}")
    try:
        yield _syncs(folder)
    except OSError as error:
        yield Finding.of(DISK_REFUSES, AREA, f"{folder}: {error.strerror or error}")


def _existing(path: Path) -> Path:
    """The folder, or the nearest one above it that is there: a first start makes the rest."""
    path = path.absolute()
    while not path.is_dir() and path != path.parent:
        path = path.parent
    return path


def _room(folder: Path, metadata_reserve_bytes: int) -> Finding:
    total, _, free = shutil.disk_usage(folder)
    return room(str(folder), total, free, metadata_reserve_bytes)


def room(folder: str, total: int, free: int, metadata_reserve_bytes: int) -> Finding:
    """What is free of the disk that ``folder`` is on, in bytes."""
    share = free / total if total else 0.0
    measured = {"free_bytes": float(free), "size_bytes": float(total)}
    said = f"{_size(free)} of {_size(total)} are free at {folder} ({share:.0%})"
    if free < metadata_reserve_bytes:
        return Finding.of(DISK_FULL, AREA, f"{said}: it is full", measured=measured)
    if share < FREE_SHARE_MIN:
        return Finding.of(DISK_FILLS_UP, AREA, said, measured=measured)
    return Finding(AREA, "ok", said, "", measured)


def _size(count: int) -> str:
    """In the largest unit of which there is one at least."""
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if count >= 1 << power:
            return f"{count / (1 << power):,.1f} {unit}"
    return f"{count} bytes"


def _syncs(folder: Path) -> Finding:
    """As the node does it: appends to one file, each followed by fdatasync."""
    path = folder / f".doctor-{secrets.token_hex(8)}.tmp"
    took: list[float] = []
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        for _ in range(SYNCS):
            os.write(descriptor, os.urandom(WRITE_BYTES))
            began = time.perf_counter()
            os.fdatasync(descriptor)
            took.append(time.perf_counter() - began)
    finally:
        os.close(descriptor)
        path.unlink()
    middle, worst = median(took), max(took)
    measured = {"fdatasync_median_seconds": middle, "fdatasync_max_seconds": worst}
    said = f"fdatasync takes {middle * 1000:.2f} ms, {worst * 1000:.2f} ms at worst of {SYNCS}"
    if middle > VERY_SLOW_SYNC_S or middle > SLOW_SYNC_S:
        severity: Severity = CRITICAL if middle > VERY_SLOW_SYNC_S else WARNING
        return Finding.of(SYNCS_SLOW, AREA, said, severity=severity, measured=measured)
    return Finding(AREA, "ok", said, "", measured)


def file_system(folder: Path, mounts: Path = Path("/proc/self/mounts")) -> str:
    """The kind of the file system that the folder is on; empty where the system does not tell."""
    try:
        lines = mounts.read_text().splitlines()
    except OSError:
        return ""
    found, resolved = ("", ""), folder.resolve()
    for line in lines:
        parts = line.split(" ")
        if len(parts) < 3:
            continue
        point = parts[1].replace("\\040", " ")
        if resolved.is_relative_to(point) and len(point) >= len(found[0]):
            found = (point, parts[2])
    return found[1]
