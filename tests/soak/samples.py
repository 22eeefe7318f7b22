"""What the nodes hold at one moment, and how long acknowledgements took since the last one."""

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self

from benchmarks.connection import BenchmarkError
from benchmarks.processes import cpu_seconds, resident_mib

MIB: Final = 1 << 20


@dataclass(frozen=True)
class NodeSample:
    """Of one process."""

    pid: int
    resident_mib: float
    open_files: int
    threads: int
    cpu_s: float
    files: int
    """In its data folder."""
    disk_mib: float


@dataclass(frozen=True)
class Sample:
    """Times are of the whole soak, all its pieces together."""

    at_s: float
    piece: int
    nodes: Mapping[int, NodeSample]
    """By number; those that run."""
    p50_ms: float | None
    """Of acknowledgements since the last sample, without those that a fault was near to; None: there were none."""
    p99_ms: float | None
    counts: Mapping[str, int]
    """What the clients have done so far in this piece."""
    faults: tuple[str, ...] = ()
    """Since the last sample."""

    def to_fields(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of_fields(cls, fields: dict[str, Any]) -> Self:
        nodes = {int(number): NodeSample(**it) for number, it in fields.pop("nodes").items()}
        return cls(nodes=nodes, faults=tuple(fields.pop("faults")), **fields)


def look_at(pid: int, data_dir: Path) -> NodeSample | None:
    """None: the process has just ended."""
    process = Path(f"/proc/{pid}")
    try:
        open_files = len(list((process / "fd").iterdir()))
        threads = len(list((process / "task").iterdir()))
        resident, cpu_s = resident_mib([pid]), cpu_seconds([pid])
    except (OSError, BenchmarkError):
        return None
    files, size = 0, 0
    for folder, _, names in os.walk(data_dir):
        for name in names:
            try:
                size += (Path(folder) / name).stat().st_blocks * 512
            except FileNotFoundError:
                continue  # retention
            files += 1
    return NodeSample(pid, resident, open_files, threads, cpu_s, files, size / MIB)
