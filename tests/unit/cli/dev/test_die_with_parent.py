"""A leashed child ends with its parent, however that ends."""

import os
import signal
import subprocess
import sys
from pathlib import Path

PARENT = """
import subprocess, sys, time
from streamlog.cli.dev.die_with_parent import leashed
child = subprocess.Popen(leashed([sys.executable, "-c", sys.argv[1]]), stdin=subprocess.DEVNULL)
time.sleep(60)
"""
CHILD = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
LEASH = Path(__file__).parents[4] / "streamlog" / "cli" / "dev" / "die_with_parent.py"


def test_a_killed_parent_takes_its_child_along() -> None:
    command = [sys.executable, "-c", PARENT, CHILD]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.send_signal(signal.SIGKILL)
        assert parent.stdout.read() == b""  # ends when nobody holds the pipe any more
        assert parent.wait() == -signal.SIGKILL
    assert child != parent.pid


def test_a_child_that_is_already_an_orphan_does_not_start() -> None:
    command = [sys.executable, "-I", "-S", str(LEASH), str(os.getpid() + 1), "echo", "started"]
    done = subprocess.run(command, capture_output=True, check=True)
    assert done.stdout == b""
