"""The supervisor of a machine's nodes, with small programs in place of nodes."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from streamlog.app import supervisor
from streamlog.app.supervisor import (
    CONFIG_ERROR,
    NODE_PROCESS_ENDED,
    NODE_PROCESS_KILLED,
    NODE_PROCESS_REFUSED,
    PAUSE_MAX_S,
    STEADY_S,
    RestartPause,
    Supervisor,
)
from streamlog.condition import Condition

WAITS = "import sys; sys.stdin.read()"
"""A node that stops when it is asked to."""
WAITS_AND_FAILS = f"{WAITS}; sys.exit(1)"
DEAF = "import time; time.sleep(60)"
ONCE = """
import os, sys
if not os.path.exists("begun"):
    open("begun", "w").close()
    sys.exit({code})
sys.stdin.read()
"""
TIMEOUT_S = 20.0


def programs(*texts: str) -> dict[int, Sequence[str]]:
    return {number: [sys.executable, "-c", text] for number, text in enumerate(texts, 1)}


def watcher(*texts: str, stop_timeout_s: float = TIMEOUT_S) -> Supervisor:
    found = programs(*texts)
    return Supervisor([*found], found.__getitem__, stop_timeout_s=stop_timeout_s)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not condition():  # noqa: ASYNC110 (by other processes)
            await asyncio.sleep(0.01)


async def running(it: Supervisor, count: int) -> list[int]:
    """The processes, as soon as there are so many."""
    await until(lambda: len(it.pids) == count)
    return [*it.pids]


def reported(caplog: pytest.LogCaptureFixture, what: Condition) -> list[int]:
    """The nodes of which that was said."""
    return [record.__dict__["node"] for record in caplog.records if record.msg == what]


def test_pauses_grow_until_a_run_was_steady() -> None:
    pause = RestartPause()
    assert [pause.after(0.1) for _ in range(7)] == [1, 2, 4, 8, 16, 30, 30] == [
        1, 2, 4, 8, 16, PAUSE_MAX_S, PAUSE_MAX_S,
    ]  # fmt: skip
    assert pause.after(STEADY_S - 0.1) == PAUSE_MAX_S
    assert pause.after(STEADY_S) == 1
    assert pause.after(1) == 2


async def test_all_are_started_and_stopped() -> None:
    it = watcher(WAITS, WAITS, WAITS)
    task = asyncio.create_task(it.run())
    pids = await running(it, 3)
    assert len(set(pids)) == 3
    it.stop()
    assert await task == 0
    assert not it.pids
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


async def test_one_that_does_not_stop_in_order_is_in_the_exit_code() -> None:
    it = watcher(WAITS, WAITS_AND_FAILS)
    task = asyncio.create_task(it.run())
    await running(it, 2)
    it.stop()
    assert await task == 1


async def test_one_that_does_not_stop_is_killed(caplog: pytest.LogCaptureFixture) -> None:
    it = watcher(DEAF, stop_timeout_s=0.1)
    task = asyncio.create_task(it.run())
    await running(it, 1)
    it.stop()
    assert await task == 1
    assert reported(caplog, NODE_PROCESS_KILLED) == [1]


@pytest.mark.parametrize("code", [0, 1, 3])
async def test_one_that_ends_is_started_again(
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Also if it ended in order: nobody asked the supervisor for that."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(supervisor, "PAUSE_S", 0.01)
    it = watcher(WAITS, ONCE.format(code=code))
    task = asyncio.create_task(it.run())
    await until(lambda: bool(reported(caplog, NODE_PROCESS_ENDED)))
    await running(it, 2)
    it.stop()
    assert await task == 0
    assert reported(caplog, NODE_PROCESS_ENDED) == [2]


async def test_one_that_is_killed_is_started_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(supervisor, "PAUSE_S", 0.01)
    it = watcher(WAITS, WAITS)
    task = asyncio.create_task(it.run())
    before = await running(it, 2)
    os.kill(before[0], signal.SIGKILL)
    await until(lambda: before[0] not in it.pids and len(it.pids) == 2)
    assert before[1] in it.pids, "the other one goes on"
    it.stop()
    assert await task == 0
    (ended,) = [record for record in caplog.records if record.msg == NODE_PROCESS_ENDED]
    assert ended.__dict__["how"] == "killed by SIGKILL"


async def test_a_wrong_configuration_ends_all_at_the_first_start(
    caplog: pytest.LogCaptureFixture,
) -> None:
    it = watcher(WAITS, f"import sys; sys.exit({CONFIG_ERROR})")
    async with asyncio.timeout(TIMEOUT_S):
        assert await it.run() == CONFIG_ERROR
    assert not it.pids
    assert reported(caplog, NODE_PROCESS_REFUSED) == [2]


async def test_a_wrong_configuration_later_on_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The file was changed, and one node crashed: the others go on."""
    text = "import sys\nif open('code').read(): sys.exit(2)\nopen('begun', 'w'); sys.stdin.read()"
    (tmp_path / "code").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(supervisor, "PAUSE_S", 0.01)
    it = watcher(WAITS, text)
    task = asyncio.create_task(it.run())
    pids = await running(it, 2)
    await until((tmp_path / "begun").exists)
    (tmp_path / "code").write_text("wrong")
    os.kill(pids[1], signal.SIGKILL)
    await until(lambda: len(reported(caplog, NODE_PROCESS_REFUSED)) >= 2)
    assert pids[0] in it.pids
    (tmp_path / "code").write_text("")
    await running(it, 2)
    it.stop()
    assert await task == 0


async def test_a_program_that_is_not_there_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(supervisor, "PAUSE_S", 0.01)
    it = Supervisor([1], lambda _: [str(tmp_path / "none")], stop_timeout_s=TIMEOUT_S)
    task = asyncio.create_task(it.run())
    await until(lambda: len(reported(caplog, NODE_PROCESS_ENDED)) >= 2)
    it.stop()
    assert await task == 0


LEASH = """
import signal, sys, time
from streamlog.app.supervisor import Leash
leash = Leash.take()
assert sys.stdin.read() == "", "standard input is empty"
leash.watch({limit_s})
{hold}
print("held", flush=True)
{wait}
"""


def leashed(**parts: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", LEASH.format(**parts)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip


def test_the_end_of_the_pipe_stops_a_node() -> None:
    hold = "import threading; asked = threading.Event(); leash.hold(asked.set)"
    with leashed(limit_s=60, hold=hold, wait="asked.wait(); sys.exit(7)") as node:
        assert node.stdout is not None
        assert node.stdin is not None
        assert node.stdout.readline() == b"held\n"
        assert node.poll() is None
        node.stdin.close()
        assert node.wait(TIMEOUT_S) == 7


def test_a_node_that_has_not_begun_ends_at_once() -> None:
    with leashed(limit_s=60, hold="", wait="time.sleep(60)") as node:
        assert node.stdin is not None
        node.stdin.close()
        assert node.wait(TIMEOUT_S) == 0


def test_a_node_that_hangs_kills_itself() -> None:
    hold = "leash.hold(lambda: None); signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    with leashed(limit_s=-4.9, hold=hold, wait="while True: time.sleep(1)") as node:
        assert node.stdin is not None
        assert node.stdout is not None
        assert node.stdout.readline() == b"held\n"
        node.stdin.close()
        assert node.wait(TIMEOUT_S) == -signal.SIGKILL
