"""What the figures were taken on, and how it is brought to the same state before each run."""

import mmap
import os
import platform
import subprocess
import time
from pathlib import Path
from statistics import median

from benchmarks.processes import binary

TOUCHED_BYTES_MAX = 1 << 30
SETTLE_S = 0.3
SYNC_BYTES = 64 * 1024
SYNC_ROUNDS = 100


def describe(directory: Path) -> dict[str, str]:
    """Processor, system, versions, and the yardstick of the disk under ``directory``."""
    return {
        "processor": f"{_processor()}, {os.cpu_count()} cores",
        "memory": f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / (1 << 30):.0f} GiB",
        "system": f"{platform.system()} {platform.release()}",
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


def settle() -> None:
    """The same start for every run: nothing waits to be written, and free memory is really there.

    What an earlier run left in the page cache is not this run's to write. And the host of a virtual
    machine takes free memory back after some seconds; whoever writes first then pays for having it
    returned, four times the price of the write itself.
    """
    os.sync()
    time.sleep(SETTLE_S)
    size = min(TOUCHED_BYTES_MAX, _available_bytes() // 4)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
    mmap.mmap(-1, size, flags=flags).close()


def _available_bytes() -> int:
    """Memory to be had, by the system and by the limit of our control group if it has one."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    limits = [1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
    group = Path("/sys/fs/cgroup/memory.max")
    if group.exists() and (limit := group.read_text().strip()).isdigit():
        limits.append(int(limit))
    return min(limits)


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _printed(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return (done.stdout or done.stderr).strip()
