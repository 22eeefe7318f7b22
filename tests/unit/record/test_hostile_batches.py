"""What is compiled reads no byte beside a batch, whatever the batch says of itself."""

import signal
import subprocess
import sys
from pathlib import Path

BATCHES = 20_000
"""Some seconds."""
ROOT = Path(__file__).parents[3]


def told(batches: int, touch: str = "no") -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-m", "tests.unit.record.hostile_batches", str(batches), touch]
    return subprocess.run(
        program, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )


def test_who_reads_beside_a_batch_is_seen() -> None:
    """Else the other test would say nothing."""
    done = told(1, "touch")
    assert done.returncode in {-signal.SIGSEGV, -signal.SIGBUS}
    assert done.stdout, "it came so far"


def test_nobody_reads_beside_a_batch() -> None:
    done = told(BATCHES)
    assert done.returncode == 0, done.stderr[-2_000:]
    batches, read, refused = map(int, done.stdout.split())
    assert batches == BATCHES
    assert min(read, refused) > BATCHES, "both kinds are tried, by several readers each"
