"""The whole demo, as `make demo` runs it; and that it leaves nothing behind when it is stopped."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


def start(tmp_path: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "demo"],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def left_over(tmp_path: Path) -> list[str]:
    """Descendants of the demo, who have its environment, and its files."""
    running = [
        str(process.info["cmdline"])
        for process in psutil.process_iter(["cmdline", "environ"])
        if (process.info["environ"] or {}).get("TMPDIR") == str(tmp_path)
    ]
    return running + [str(path) for path in tmp_path.glob("streamlog-*")]


def test_the_demo_is_right_and_leaves_nothing(tmp_path: Path) -> None:
    demo = start(tmp_path)
    said, _ = demo.communicate(timeout=600)
    assert demo.returncode == 0, said
    assert "336,776 flights, every answer checked" in said
    assert left_over(tmp_path) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("after_s", [1.0, 8.0, 20.0])
def test_a_stopped_demo_leaves_nothing(
    tmp_path: Path, number: signal.Signals, after_s: float
) -> None:
    demo = start(tmp_path)
    try:
        demo.wait(after_s)
    except subprocess.TimeoutExpired:
        demo.send_signal(number)
    said, _ = demo.communicate(timeout=60)
    assert demo.returncode in (0, 130, -number), said
    deadline = time.monotonic() + 10
    while left_over(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left_over(tmp_path) == []
