"""What the figures were taken on, and how it is brought to the same state before each run."""

import os
import platform
import subprocess
import time
from pathlib import Path
from statistics import median

from benchmarks.processes import binary

SETTLE_S = 0.3
WARM_BYTES = 1 << 30
WARM_BLOCK_BYTES = 1 << 18
SYNC_BYTES = 64 * 1024
SYNC_ROUNDS = 100


def describe(directory: Path) -> dict[str, str]:
    """Processor, system, versions, and the yardstick of the disk under ``directory``."""
    return {
        "processor": f"{_processor()}, {os.cpu_count()} cores",
        "memory": f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / (1 << 30):.0f} GiB",
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "python": platform.python_version(),
        "nats-server": _printed([binary("nats-server"), "--version"]).rpartition("v")[2],
        "confluent-kafka": _printed(
            [
                binary("python"),
                "-c",
                "import confluent_kafka as k; print(k.version(), k.libversion()[0])",
            ]
        ),
        "fdatasync of a 64 KiB append": f"{sync_ms(directory):.2f} ms median",
    }


def sync_ms(directory: Path) -> float:
    """The median time of one fdatasync after an append."""
    path, times, data = directory / "sync-probe", [], os.urandom(SYNC_BYTES)
    with path.open("wb", buffering=0) as file:
        for _ in range(SYNC_ROUNDS):
            file.write(data)
            start = time.perf_counter()
            os.fdatasync(file.fileno())
            times.append(1000 * (time.perf_counter() - start))
    path.unlink()
    return median(times)


def settle(directory: Path) -> None:
    """The same start for every run: nothing waits to be written, and free memory is really there.

    The host of a virtual machine takes free memory back after some seconds and returns it at the
    first touch, which makes a write into the page cache ten times slower. So as much as a run may
    write is written and dropped right before it.
    """
    os.sync()
    time.sleep(SETTLE_S)
    path, block = directory / "warm-up", bytes(WARM_BLOCK_BYTES)
    with path.open("wb", buffering=0) as file:
        for _ in range(WARM_BYTES // WARM_BLOCK_BYTES):
            file.write(block)
    path.unlink()


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _printed(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return (done.stdout or done.stderr).strip()
