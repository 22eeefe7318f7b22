"""Run as a program: has the kernel end this process with its parent, then becomes the command.

A program of its own and not a function between fork and exec, because a parent with threads could
not run Python there safely. It needs nothing but the standard library and starts in milliseconds.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Sequence
from typing import Final

PR_SET_PDEATHSIG: Final = 1


def leashed(command: Sequence[str]) -> list[str]:
    """``command`` for a child that is sent SIGTERM when the thread that starts it ends."""
    if not sys.platform.startswith("linux"):
        return list(command)
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), *command]


def main() -> None:
    parent, command = int(sys.argv[1]), sys.argv[2:]
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
    if os.getppid() == parent:  # else it ended before the call
        os.execvp(command[0], command)


if __name__ == "__main__":
    main()
