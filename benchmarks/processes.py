"""Child processes: start, processor time, stop; and clients that answer with a line of JSON."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

from benchmarks.connection import BenchmarkError

CLIENT_TIMEOUT_S: Final = 300.0
STOP_TIMEOUT_S: Final = 20.0
_TICKS = os.sysconf("SC_CLK_TCK")


def binary(name: str) -> str:
    """A program beside our interpreter."""
    return str(Path(sys.executable).parent / name)


@cache
def compiled(name: str) -> str:
    """A program whose source is beside this module. Raises BenchmarkError where there is no C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise BenchmarkError(f"{name}.c needs a C compiler")
    made = Path(mkdtemp(prefix=f"streamlog-{name}-")) / name
    source = Path(__file__).with_name(f"{name}.c")
    subprocess.run([compiler, "-O2", "-D_GNU_SOURCE", "-o", str(made), str(source)], check=True)
    return str(made)


def times(pid: int) -> tuple[float, float]:
    """Processor seconds that the process has used: user, system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) / _TICKS, int(fields[12]) / _TICKS


def cpu_seconds(pids: Sequence[int]) -> float:
    """Processor seconds that the processes have used, all their threads, to the nanosecond."""
    try:
        return sum(time.clock_gettime(_processor_clock(pid)) for pid in pids)
    except OSError as error:
        raise BenchmarkError(f"a process of {pids} is gone: {error}") from None


def _processor_clock(pid: int) -> int:
    """What ``clock_getcpuclockid`` gives: the scheduler's account of a whole process."""
    return (~pid << 3) | 2


def peak_mib(pid: int) -> float:
    """The most memory that the process ever held."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise BenchmarkError(f"process {pid} has no peak")


def resident_mib(pids: Sequence[int]) -> float:
    """Memory that the processes hold."""
    pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids)
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def run_client(module: str, *arguments: str) -> dict[str, float]:
    """Run ``python -m benchmarks.<module>`` and return what it measured."""
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{module}", *arguments],
        capture_output=True,
        text=True,
        timeout=CLIENT_TIMEOUT_S,
        check=False,
        cwd=Path(__file__).parent.parent,
    )
    try:
        result = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        raise BenchmarkError(f"{module} {arguments} printed no result:\n{done.stderr}") from None
    assert isinstance(result, dict)
    if "failed" in result:
        raise BenchmarkError(f"{module} {' '.join(arguments)}: {result['failed']}")
    return result
