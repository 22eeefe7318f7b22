"""The supervisor of a machine with several nodes: starts a process for each, and keeps them running.

- Each process is ``streamlog serve --node ID``: a node that knows nothing of the others on its
  machine but what the cluster's metadata says.
- A process that ends without being asked to is started again, after a pause that grows with each
  end (``RestartPause``). A start that its configuration refuses (exit code 2) ends the supervisor
  and all nodes, if it is the first start of that node: then nothing that worked is lost. Later
  on it is tried again, since the other nodes do their work.
- A process has a pipe to the supervisor as its standard input. Nothing is ever written to it: its
  end is the request to stop (``Leash``). The system closes it with the supervisor, however that
  ends, so no node outlives its supervisor. The request is no signal, because systemd may send
  SIGTERM to all processes of a unit, and a node takes a second signal for impatience.
- A node that does not stop in time is killed: by the supervisor, or, where that is gone, by itself.
- SIGHUP goes to all nodes, which load their certificates again.
"""

import asyncio
import contextlib
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from streamlog.app.logs import configure_logs, summarise_logs
from streamlog.condition import CRITICAL, NO_ACTION, Condition
from streamlog.config import Settings

logger = logging.getLogger(__name__)

NODE_PROCESS_ENDED: Final = Condition(
    "SL-0006",
    "a node's process ended",
    "the lines of that node in the log say why; it is started again by itself",
    meaning="A process of `node.processes` ended without being asked to. The supervisor starts it "
    "again, after a pause that grows with each end. Other nodes lead its partitions meanwhile.",
)
NODE_PROCESS_REFUSED: Final = Condition(
    "SL-0007",
    "a node does not start with its configuration",
    "correct what that node has said: streamlog config check",
    meaning="A process of `node.processes` refused its configuration. At the first start the "
    "supervisor ends, with all nodes. Later on it tries again, after a pause that grows.",
    severity=CRITICAL,
)
NODE_PROCESS_KILLED: Final = Condition(
    "SL-0008",
    "a node's process was killed",
    "the next start recovers; raise node.stop_timeout_ms if it is short",
    meaning="A process of `node.processes` did not stop within node.stop_timeout_ms, and the "
    "supervisor killed it. Records that were acknowledged are safe.",
)
STOPPING_AT_ONCE: Final = Condition(
    "SL-0004",
    "stopping at once",
    NO_ACTION,
    meaning="A second signal came while the node was stopping: it ends without the rest of the "
    "steps.",
)

CONFIG_ERROR: Final = 2
"""The exit code of a command whose configuration is wrong."""
PAUSE_S: Final = 1.0
PAUSE_MAX_S: Final = 30.0
STEADY_S: Final = 60.0
"""After so long of running an end is the first one again."""
GRACE_S: Final = 5.0
"""A node ends by itself after ``node.stop_timeout_ms``, and so much later at the most."""
STDIN: Final = 0

Command = Callable[[int], Sequence[str]]
"""What runs the node of an id."""


class RestartPause:
    """How long to wait before a process is started again. Pure."""

    def __init__(self) -> None:
        self._next_s = PAUSE_S

    def after(self, ran_s: float) -> float:
        """The pause after a run of so many seconds: doubled each time, until a run was steady."""
        if ran_s >= STEADY_S:
            self._next_s = PAUSE_S
        pause_s = self._next_s
        self._next_s = min(2 * pause_s, PAUSE_MAX_S)
        return pause_s


class NodeChild:
    """A node's process, and the pipe whose end stops it."""

    def __init__(self, process: asyncio.subprocess.Process, pipe: int) -> None:
        self._process = process
        self._pipe: int | None = pipe

    @classmethod
    async def start(cls, command: Sequence[str]) -> "NodeChild":
        """Raises OSError. In a session of its own: Ctrl-C in a terminal reaches the supervisor alone.

        SIGHUP is blocked in it until it has a handler (``Leash.take``): it would end the process.
        """
        stdin, pipe = os.pipe()
        try:
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
            process = await asyncio.create_subprocess_exec(
                *command, stdin=stdin, start_new_session=True
            )
        except BaseException:
            os.close(pipe)
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
            os.close(stdin)
        return cls(process, pipe)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def wait(self) -> int:
        """The exit code; negative: the signal that killed it."""
        code = await self._process.wait()
        self.stop()
        return code

    def stop(self) -> None:
        """May be called again."""
        pipe, self._pipe = self._pipe, None
        if pipe is not None:
            os.close(pipe)

    def send(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)


class Supervisor:
    """``run`` until a signal, or until a node refuses its configuration."""

    def __init__(self, nodes: Sequence[int], command: Command, *, stop_timeout_s: float) -> None:
        self._nodes = nodes
        self._command = command
        self._stop_timeout_s = stop_timeout_s
        self._children: dict[int, NodeChild] = {}
        self._stopping = asyncio.Event()
        self._starting = asyncio.Lock()  # the mask of signals is the process's
        self._code = 0

    @property
    def pids(self) -> Sequence[int]:
        """Of the nodes that run, in the order in which they were started."""
        return [child.pid for child in self._children.values()]

    async def run(self) -> int:
        """The exit code: 0 if all nodes stopped in order."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled, number)
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        logger.info("supervisor started", extra={"nodes": list(self._nodes)})
        async with asyncio.TaskGroup() as tasks:
            summaries = tasks.create_task(summarise_logs())
            nodes = [tasks.create_task(self._keep(node_id)) for node_id in self._nodes]
            await self._stopping.wait()
            killer = loop.call_later(self._stop_timeout_s, self._kill_all)
            await asyncio.wait(nodes)
            killer.cancel()
            summaries.cancel()
        logger.info("supervisor stopped", extra={"exit_code": self._code})
        return self._code

    def stop(self, code: int = 0) -> None:
        """All nodes at once: no two of them keep the same partition. ``code``: of the exit, if it
        is the first that is not 0.
        """
        self._code = self._code or code
        self._stopping.set()
        for child in self._children.values():
            child.stop()

    async def _keep(self, node_id: int) -> None:
        """Running, until all stop."""
        pause, is_first = RestartPause(), True
        while not self._stopping.is_set():
            began_s = time.monotonic()
            ended = await self._run(node_id)
            if self._stopping.is_set():
                self._code = self._code or int(ended != 0)
                return
            extra = {"node": node_id, "how": _how(ended)}
            if ended == CONFIG_ERROR and is_first:
                logger.critical(NODE_PROCESS_REFUSED, extra=extra)
                self.stop(CONFIG_ERROR)
                return
            is_first = False
            pause_s = pause.after(time.monotonic() - began_s)
            what = NODE_PROCESS_REFUSED if ended == CONFIG_ERROR else NODE_PROCESS_ENDED
            logger.error(what, extra={**extra, "restart_s": pause_s})
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause_s)

    async def _run(self, node_id: int) -> int | str:
        """Once, until it ends; the exit code, or why it could not be started."""
        async with self._starting:
            if self._stopping.is_set():
                return 0
            try:
                child = await NodeChild.start(self._command(node_id))
            except OSError as error:
                return error.strerror or str(error)
            self._children[node_id] = child
            if self._stopping.is_set():
                child.stop()
        logger.info("node's process started", extra={"node": node_id, "pid": child.pid})
        try:
            return await child.wait()
        finally:
            del self._children[node_id]

    def _signalled(self, number: signal.Signals) -> None:
        if not self._stopping.is_set():
            logger.info("stopping", extra={"signal": number.name})
            self.stop()
            return
        logger.warning(STOPPING_AT_ONCE, extra={"signal": number.name})
        self._code = self._code or 128 + number
        for child in self._children.values():
            child.send(signal.SIGKILL)

    def _kill_all(self) -> None:
        for node_id, child in self._children.items():
            logger.error(NODE_PROCESS_KILLED, extra={"node": node_id, "pid": child.pid})
            child.send(signal.SIGKILL)

    def _reload(self) -> None:
        for child in self._children.values():
            child.send(signal.SIGHUP)


def run_supervisor(settings: Settings, nodes: Sequence[int], config: Path | None) -> None:
    """``settings``: of the machine's first node. Until a signal; ends the process."""

    def command(node_id: int) -> Sequence[str]:
        words = [sys.executable, "-m", "streamlog", "serve", "--node", str(node_id), "--supervised"]
        return words if config is None else [*words, "--config", str(config)]

    async def run() -> int:
        timeout_s = settings.node.stop_timeout_ms / 1000 + 2 * GRACE_S
        return await Supervisor(nodes, command, stop_timeout_s=timeout_s).run()

    configure_logs(settings.logging.format, settings.logging.level)
    sys.exit(asyncio.run(run()))


class Leash:
    """The node's end of the pipe. ``watch`` it; ``hold`` as soon as the node can be stopped."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._stop: Callable[[], None] | None = None

    @classmethod
    def take(cls) -> "Leash":
        """Of a process that the supervisor has started. Programs that the node runs do not get it."""
        pipe = os.dup(STDIN)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, STDIN)
        os.close(null)
        return cls(pipe)

    def watch(self, stop_timeout_s: float) -> None:
        """In a thread, so that also a node whose event loop hangs ends: it kills itself when the
        time for a stop is over.
        """
        threading.Thread(
            target=self._wait, args=(stop_timeout_s + GRACE_S,), name="leash", daemon=True
        ).start()

    def hold(self, stop: Callable[[], None]) -> None:
        """``stop`` is called in another thread, when the supervisor wants that or is gone."""
        self._stop = stop

    def _wait(self, limit_s: float) -> None:
        while os.read(self._pipe, 1):
            pass
        if self._stop is None:
            os._exit(0)  # nothing has begun
        self._stop()
        time.sleep(limit_s)
        os.kill(os.getpid(), signal.SIGKILL)


def _how(ended: int | str) -> str:
    if isinstance(ended, str):
        return ended
    if ended >= 0:
        return f"exit code {ended}"
    with contextlib.suppress(ValueError):
        return f"killed by {signal.Signals(-ended).name}"
    return f"killed by signal {-ended}"
