"""Starts ``streamlog`` commands as forks of a process that has imported them.

Most of what a node's start costs is importing; a fork has that already. The child is otherwise as the
command is: a process in a session of its own, with the environment of the process that asks, which
runs the program's ``main`` and is killed, stopped and waited for like any other. What an
interpreter reads of its environment when it starts, it has from the fork server.

The fork server has one thread and no event loop, so that a fork is safe. It ends with the process that
started it, and its children with it.
"""

import atexit
import contextlib
import ctypes
import gc
import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from streamlog.cli.dev.die_with_parent import PR_SET_PDEATHSIG, leashed

REQUEST_BYTES_MAX: Final = 64 * 1024
IMPORTED: Final = ("streamlog.app.run", "streamlog.cli.program", "streamlog.cli.node.serve")
_STATUS_BYTES: Final = 4


class ForkedProcess:
    """As ``subprocess.Popen``, of a child of the fork server. Its exit code comes through a pipe."""

    def __init__(self, pid: int, status: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._status = status

    def poll(self) -> int | None:
        """The exit code; None while it runs."""
        return self._read(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, negative for a signal; TimeoutExpired if it does not end."""
        code = self._read(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # its exit code is on its way
                os.kill(self.pid, number)

    def _read(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], timeout)[0]:
            data = os.read(self._status, _STATUS_BYTES)
            os.close(self._status)
            # Without a word the fork server is gone, and has taken its children along.
            self.returncode = (
                int.from_bytes(data, "big", signed=True) if data else -int(signal.SIGTERM)
            )
        return self.returncode


class ForkServer:
    """``start`` commands; from one thread."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, "-m", "tools.nodes.fork_server", str(theirs.fileno())]
            self._process = subprocess.Popen(
                leashed(command),
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                cwd=Path(__file__).parents[2],
                start_new_session=True,
            )

    def start(
        self,
        arguments: Sequence[str],
        log: Path,
        *,
        errors: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> ForkedProcess:
        """``streamlog <arguments>``, with its output at the end of ``log``; what it writes to standard
        error goes there too, or to ``errors``. ``environment``: instead of ours.
        """
        for path in (log, errors or log):
            path.touch()  # it is there as soon as the process is
        request = {
            "arguments": [*arguments],
            "output": [str(it.resolve()) for it in (log, errors or log)],
            "cwd": str(Path.cwd()),
            "environment": dict(os.environ if environment is None else environment),
        }
        status, theirs = os.pipe()
        try:
            socket.send_fds(self._socket, [json.dumps(request).encode()], [theirs])
        finally:
            os.close(theirs)
        answer = self._socket.recv(REQUEST_BYTES_MAX)
        if not answer:
            raise OSError("the fork server is gone")
        return ForkedProcess(int(answer), status)

    def run(
        self, arguments: Sequence[str], environment: Mapping[str, str], *, timeout_s: float
    ) -> subprocess.CompletedProcess[str]:
        """Until it ends. Raises TimeoutExpired, after it was killed."""
        with tempfile.TemporaryDirectory() as folder:
            output, errors = Path(folder, "output"), Path(folder, "errors")
            process = self.start(arguments, output, errors=errors, environment=environment)
            try:
                code = process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.wait()
                raise
            return subprocess.CompletedProcess(
                [*arguments], code, output.read_text(), errors.read_text()
            )

    def stop(self) -> None:
        """Its children are ended."""
        self._socket.close()
        self._process.wait()


@cache
def fork_server() -> ForkServer:
    """This process's."""
    server = ForkServer()
    atexit.register(server.stop)
    return server


def _serve(requests: socket.socket) -> None:
    """Returns in the fork server when the process that asks is gone. A child never returns."""
    wakeup, woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    statuses: dict[int, int] = {}
    while True:
        ready = select.select([requests.fileno(), wakeup], [], [])[0]
        if wakeup in ready:
            os.read(wakeup, 4096)
            _reap(statuses)
        if requests.fileno() in ready:
            data, fds, _, _ = socket.recv_fds(requests, REQUEST_BYTES_MAX, 1)
            if not data:
                break
            leads, led = os.pipe()
            parent, pid = os.getpid(), os.fork()
            if pid == 0:
                os.setsid()
                signal.set_wakeup_fd(-1)
                for fd in (requests.fileno(), wakeup, woken, leads, led, *fds, *statuses.values()):
                    os.close(fd)
                _become(json.loads(data), parent)
            os.close(led)
            os.read(leads, 1)  # nothing: the child leads its process group, which can be killed
            os.close(leads)
            statuses[pid] = fds[0]
            requests.send(str(pid).encode())
    for pid in statuses:
        os.kill(pid, signal.SIGTERM)


def _reap(statuses: dict[int, int]) -> None:
    while statuses:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            break
        fd = statuses.pop(pid)
        code = os.waitstatus_to_exitcode(status)
        with contextlib.suppress(BrokenPipeError):  # the process that asked is gone
            os.write(fd, code.to_bytes(_STATUS_BYTES, "big", signed=True))
        os.close(fd)


def _become(request: dict[str, Any], parent: int) -> None:
    """The child: it ends as the program does."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)  # it ended before the call
    for fd, path in zip((1, 2), request["output"], strict=True):
        output = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.dup2(output, fd)
        os.close(output)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    random.seed()  # as every process begins: forks must not draw the same
    sys.argv = ["streamlog", *request["arguments"]]
    code = 1
    try:
        import_module("streamlog.cli.program").main()
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def main() -> None:
    for name in IMPORTED:
        import_module(name)
    gc.freeze()  # what children do not look at stays shared
    _serve(socket.socket(fileno=int(sys.argv[1])))


if __name__ == "__main__":
    main()
