"""A node in place of each nats-server that nats-py's tests of NATS without JetStream start.

They start it by its name, and so find the one in PATH, which becomes a node (``nats_stand_in``).
They ask its monitoring port whether it is there, or give it a second; here whatever starts one
waits for its NATS port. A node goes into lame duck mode when it is told to stop.
"""

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

TEST_TIMEOUT_S = 60
"""Theirs are 5 s and 20 s, and some of them start a server in that time."""
START_TIMEOUT_S = 30


@pytest.hookimpl(tryfirst=True)
def pytest_configure() -> None:
    """Before its test modules take the names."""
    from tests import utils

    utils.async_test.__defaults__ = (TEST_TIMEOUT_S,)
    utils.async_long_test.__defaults__ = (TEST_TIMEOUT_S,)
    utils.start_natsd = utils.NATSD.start = starting(utils.NATSD.start)
    utils.NATSD.send_signal = signalling(utils.NATSD.send_signal)
    os.environ["NATS_SERVER_VERSION"] = "main"  # else it leaves out what came with 2.10


started_servers: list[Any] = []


@pytest.fixture(autouse=True)
def _new_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each test takes for granted that its servers are new; one that it starts again is not.
    Where one does not start, the test leaves the others to us.
    """
    monkeypatch.setenv("STAND_IN_FOLDER", str(tmp_path / "nodes"))
    yield
    for process in started_servers:
        process.kill()
        process.wait()
    started_servers.clear()


def starting(start: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def started(server: Any) -> Any:
        """Return when it greets."""
        process = start(server)
        started_servers.append(process)
        deadline = time.monotonic() + START_TIMEOUT_S
        while not greets(server.port):
            assert process.poll() is None, f"the server has ended: {last_words(server.port)}"
            assert time.monotonic() < deadline, "the server does not start"
            time.sleep(0.02)
        return process

    return started


def signalling(send: Callable[[Any, int], None]) -> Callable[[Any, int], None]:
    def sent(server: Any, number: int) -> None:
        send(server, signal.SIGTERM if number == signal.SIGUSR2 else number)

    return sent


def last_words(port: int) -> str:
    folder = Path(os.environ["STAND_IN_FOLDER"])
    files = (folder / "refused", folder / str(port) / "node.log")
    return "".join(path.read_text() for path in files if path.exists())[-2000:]


def greets(port: int) -> bool:
    """Where TLS comes first, it is the client that has to begin."""
    try:
        with socket.create_connection(("127.0.0.1", port), 1) as connection:
            connection.settimeout(0.5)
            return connection.recv(4) in (b"INFO", b"")
    except TimeoutError:
        return True
    except OSError:
        return False
