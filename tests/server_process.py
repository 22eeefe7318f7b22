"""Real processes of a test: children in groups of their own that end with it."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from benchmarks.ports import free_port
from streamlog.cli.dev.die_with_parent import leashed

READY_TIMEOUT_S: Final = 30.0

_STARTER: Final = ThreadPoolExecutor(1, "starts servers")
"""A leashed child ends with the thread that started it, so that has to be one that stays."""


def program(name: str) -> str:
    """A program of this environment."""
    return str(Path(sys.executable).parent / name)


def wait_until(
    condition: Callable[[], bool], what: str, timeout_s: float = READY_TIMEOUT_S
) -> None:
    """Poll; fail with ``what`` when it does not come."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {timeout_s} s")
        time.sleep(0.01)


def listens(port: int, host: str = "127.0.0.1") -> bool:
    """Does somebody accept connections there?"""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((host, port)) == 0


class ServerProcess:
    """A child in a process group of its own, its output in one log file over all restarts."""

    def __init__(self, command: list[str], log: Path) -> None:
        self.command = command
        self.log = log
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def spawn(self) -> None:
        self._process = _STARTER.submit(self._start).result()

    def _start(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as output:
            return subprocess.Popen(
                leashed(self.command),  # ends with us, also if nobody gets to stop it
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """As a crash: no chance to say goodbye."""
        if self._process is not None:
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def pause(self) -> None:
        """Stop it in its tracks; its connections stay."""
        os.killpg(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on, with no notion of the time that has passed."""
        os.killpg(self.pid, signal.SIGCONT)

    def ask_to_stop(self) -> None:
        self._running().send_signal(signal.SIGTERM)

    def wait(self, timeout_s: float = 20.0) -> int:
        """The exit code; TimeoutExpired if it does not end."""
        return self._running().wait(timeout_s)

    def stop(self, timeout_s: float = 20.0) -> int:
        """Ask to stop and return the exit code."""
        self.ask_to_stop()
        return self.wait(timeout_s)

    def log_text(self) -> str:
        return self.log.read_text(errors="replace")

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process


class NatsServer(ServerProcess):
    """nats-server without JetStream."""

    def __init__(self, directory: Path, host: str = "127.0.0.1") -> None:
        port = free_port(host)
        command = [program("nats-server"), "-a", host, "-p", str(port)]
        super().__init__(command, directory / "nats.log")
        self.host = host
        self.port = port
        self.url = f"nats://{host}:{port}"

    def start(self) -> None:
        self.spawn()
        wait_until(lambda: listens(self.port, self.host), "nats-server")
