"""Server processes: children in groups of their own that end with the process that started them."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ClassVar, Final

from streamlog.cli.dev import embedded_nats
from streamlog.cli.dev.die_with_parent import leashed
from tools.nodes.fork_server import ForkedProcess, fork_server
from tools.nodes.ports import free_port

READY_TIMEOUT_S: Final = 30.0
HTTP_TIMEOUT_S: Final = 5.0

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


def http_get(address: str, timeout_s: float = HTTP_TIMEOUT_S) -> tuple[int, str]:
    """Status and body; status 0 where nobody answers."""
    try:
        with urllib.request.urlopen(address, timeout=timeout_s) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except OSError:
        return 0, ""


class ServerEndedError(Exception):
    """A server ended that was to go on."""


class ServerProcess:
    """A child in a process group of its own, its output in one log file over all restarts."""

    def __init__(
        self, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        """``environment``: instead of ours."""
        self.command = [*command]
        self.log = log
        self.environment = environment
        self._process: subprocess.Popen[bytes] | ForkedProcess | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def spawn(self) -> None:
        self._process = _STARTER.submit(self._start).result()

    def _start(self) -> subprocess.Popen[bytes] | ForkedProcess:
        with self.log.open("ab") as output:
            return subprocess.Popen(
                leashed(self.command),  # ends with us, also if nobody gets to stop it
                stdout=output,
                stderr=output,
                env=self.environment,
                start_new_session=True,
            )

    def check_running(self) -> None:
        """Raises ServerEndedError with the end of its log."""
        if not self.is_running():
            raise ServerEndedError(f"{self.log.stem} ended:\n{self.log_text()[-4000:]}")

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def strike(self) -> None:
        """As a crash: no chance to say goodbye. Its end is not waited for."""
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.killpg(self._process.pid, signal.SIGKILL)

    def kill(self) -> None:
        """``strike``, and return when it has ended."""
        self.strike()
        if self._process is not None:
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

    def end(self, timeout_s: float = 20.0) -> None:
        """Ask to stop, and kill what does not."""
        if self.is_running():
            try:
                self.stop(timeout_s)
            except subprocess.TimeoutExpired:
                self.kill()

    def log_text(self) -> str:
        return self.log.read_text(errors="replace")

    def _running(self) -> subprocess.Popen[bytes] | ForkedProcess:
        assert self._process is not None
        return self._process


class StreamlogProcess(ServerProcess):
    """A command of ``streamlog``."""

    is_forked: ClassVar = False
    """It is a fork of a process that has imported the program, as tests with many starts have it."""

    def _start(self) -> subprocess.Popen[bytes] | ForkedProcess:
        program_path, *arguments = self.command
        if self.is_forked and program_path == program("streamlog") and self.environment is None:
            return fork_server().start(arguments, self.log)
        return super()._start()


def run_streamlog(
    arguments: Sequence[str], environment: Mapping[str, str], *, timeout_s: float
) -> subprocess.CompletedProcess[str]:
    """The command, until it ends, in this environment. Raises TimeoutExpired."""
    if StreamlogProcess.is_forked:
        return fork_server().run(arguments, environment, timeout_s=timeout_s)
    command = [program("streamlog"), *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=timeout_s, env=environment
    )


class NatsServer(ServerProcess):
    """nats-server without JetStream. ``tuned``: with what ``streamlog dev`` gives to its own."""

    def __init__(self, directory: Path, host: str = "127.0.0.1", *, tuned: bool = False) -> None:
        port = free_port(host)
        if tuned:
            command = embedded_nats.command(host, port, directory / "nats.conf")
            environment = embedded_nats.environment()
        else:
            command, environment = [program("nats-server"), "-a", host, "-p", str(port)], None
        super().__init__(command, directory / "nats.log", environment)
        self.host = host
        self.port = port
        self.address = f"{host}:{port}"
        self.url = f"nats://{self.address}"

    def start(self) -> None:
        self.spawn()
        wait_until(lambda: listens(self.port, self.host), "nats-server")
