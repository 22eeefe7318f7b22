"""The development cluster: nodes, and a nats-server where one is wanted, started, watched and stopped."""

import asyncio
import contextlib
import json
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from streamlog.cli.dev import embedded_nats
from streamlog.cli.dev.child import Child
from streamlog.cli.dev.dev_layout import HOST, DevPlan, Ports, lay_out
from streamlog.cli.dev.dev_node import DevNode
from streamlog.cli.options import contexts, running_dev
from streamlog.cli.output import say
from streamlog.config import ENV_DELIMITER, ENV_PREFIX, NatsSection
from streamlog.errors import ConfigError, StreamlogError
from streamlog.log.storage.folder_lock import FolderInUse, FolderLock

NATS_STOP_TIMEOUT_S: Final = 5.0
NODE_STOP_TIMEOUT_S: Final = 30.0
POLL_S: Final = 0.03
PATIENCE_S: Final = 2.0
"""After so long of waiting, say what for."""

Probe = Callable[[], Awaitable[str | None]]
"""None when it is ready, else what it waits for."""


class Stopped(Exception):
    """The user wants to stop before all is ready."""


class DevCluster:
    """Runs until a signal. A node that dies is reported, not restarted: the user may be trying a failure."""

    def __init__(self, plan: DevPlan) -> None:
        self._plan = plan
        self._ready_file = plan.directory / "dev.json"
        self._stop = asyncio.Event()
        self._children: list[Child] = []  # in the order of their start
        self._ports = Ports()

    async def run(self) -> int:
        """The exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._stop.set)
        with _locked(self._plan.directory):
            self._ready_file.unlink(missing_ok=True)
            try:
                await self._start_and_watch()
            except Stopped:
                pass
            finally:
                self._ready_file.unlink(missing_ok=True)
                running_dev.remove()
                await self._stop_children()
                self._ports.close()
        return 0

    async def _start_and_watch(self) -> None:
        nodes = lay_out(self._plan, self._ports)
        login: dict[str, str] = {}
        server: str | None = None
        if self._plan.nats:
            server, login = without_login(self._plan.nats)
        elif self._plan.nats_server:
            server = await self._start_nats()
        await self._start_nodes(nodes, server, login)
        entries = [node.entry() for node in nodes]
        nats = server or nodes[0].nats
        _write_atomically(self._ready_file, {"ready": True, "nats": nats, "nodes": entries})
        running_dev.write(",".join(node.kafka for node in nodes))
        ports = ",".join(node.nats for node in nodes)
        _say(f"NATS   {ports if server is None else f'{server} (nodes: {ports})'}")
        _say(f"Kafka  {','.join(node.kafka for node in nodes)}")
        _say(f"HTTP   {' '.join(node.http for node in nodes)}")
        _say(f"Data   {self._plan.directory}")
        if contexts.current() is not None:
            _say(f"Commands ask context {contexts.current()}: `streamlog context use` ends that")
        _say("ready; Ctrl-C stops everything")
        async with asyncio.TaskGroup() as tasks:
            watches = [tasks.create_task(self._watch(child)) for child in self._children]
            await self._stop.wait()
            for watch in watches:
                watch.cancel()

    async def _start_nats(self) -> str:
        port = self._ports.settle("--nats-port", HOST, self._plan.nats_port)
        directory = self._plan.directory
        command = embedded_nats.command(HOST, port, directory / "nats-server.conf")
        log, env = directory / "nats-server.log", embedded_nats.environment()
        child = await self._start(lambda: Child.start(embedded_nats.PROGRAM, command, log, env=env))
        await self._wait_ready(child, lambda: _probe_nats(port))
        return f"nats://{HOST}:{port}"

    async def _start_nodes(
        self, nodes: Sequence[DevNode], nats: str | None, login: Mapping[str, str]
    ) -> None:
        """All at once: none of several is ready before most are there."""
        for node in nodes:
            node.write_config(nats, is_ours=self._plan.nats is None, login=login)
        children = [await self._start(node.start) for node in nodes]
        for node, child in zip(nodes, children, strict=True):
            await self._wait_ready(child, node.probe)

    async def _start(self, start: Callable[[], Awaitable[Child]]) -> Child:
        child = await start()
        self._children.append(child)
        return child

    async def _wait_ready(self, child: Child, probe: Probe) -> None:
        loop = asyncio.get_running_loop()
        told, patience = "", loop.time() + PATIENCE_S
        while (reason := await probe()) is not None:
            for each in self._children:
                if each.exit_code is not None:
                    raise _start_error(each)
            if loop.time() > patience and reason != told:
                _say(f"waiting for {child.name}: {reason}")
                told = reason
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_S):
                    await self._stop.wait()
                raise Stopped

    async def _watch(self, child: Child) -> None:
        code = await child.wait()
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        _say(f"{child.name} (pid {child.pid}) ended: {how}; its last words: {child.last_line()}")
        if child.restart:
            _say(f"start it again with: {child.restart}")

    async def _stop_children(self) -> None:
        """Nodes first, and all at once: they say goodbye to NATS, but not to each other."""
        nodes = [child for child in self._children if child.name != embedded_nats.PROGRAM]
        others = [child for child in self._children if child.name == embedded_nats.PROGRAM]
        for children, timeout_s in ((nodes, NODE_STOP_TIMEOUT_S), (others, NATS_STOP_TIMEOUT_S)):
            stopped = await asyncio.gather(*(child.stop(timeout_s) for child in children))
            for child, in_time in zip(children, stopped, strict=True):
                if not in_time:
                    _say(f"{child.name} did not stop within {timeout_s:.0f} s and was killed")


def without_login(nats: str) -> tuple[str, dict[str, str]]:
    """The address, and what nodes are to have in their environment for the login in it."""
    from streamlog.ingest.nats.options import NatsOptions

    access = NatsOptions(NatsSection(servers=(nats,)))
    fields = access.login.fields("")
    names = {"user": "USER", "pass": "PASSWORD", "auth_token": "TOKEN"}
    prefix = f"{ENV_PREFIX}NATS{ENV_DELIMITER}"
    login = {f"{prefix}{names[field]}": value for field, value in fields.items()}
    return access.servers[0], login


async def _probe_nats(port: int) -> str | None:
    try:
        async with asyncio.timeout(1):
            reader, writer = await asyncio.open_connection(HOST, port)
            greeting = await reader.readline()
            writer.close()
    except (OSError, TimeoutError):
        return "it does not answer yet"
    return None if greeting.startswith(b"INFO ") else "it does not speak NATS"


def _start_error(child: Child) -> StreamlogError:
    """What the child said last is the reason; a wrong setting stays one."""
    said = child.last_line().removeprefix("streamlog: ")
    if child.exit_code == 2 and said.count(": "):
        key, _, text = said.partition(": ")
        problem, _, remedy = text.rpartition("; ")
        return ConfigError(f"{child.name}: {key}", problem, remedy)
    return StreamlogError(f"{child.name} did not start; its last words: {said} (see {child.log})")


def _locked(directory: Path) -> FolderLock:
    """One development cluster for each folder."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        return FolderLock.take(directory, name="dev.lock")
    except FolderInUse:
        problem, remedy = f"{directory} is in use", "stop the other one or name another folder"
        raise ConfigError("--data-dir", problem, remedy) from None
    except OSError as error:
        problem = f"{directory} cannot be written ({error.strerror})"
        raise ConfigError("--data-dir", problem, "name a folder of your own") from None


def _write_atomically(path: Path, content: object) -> None:
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(content, indent=2) + "\n")
    temporary.replace(path)


def _say(text: str) -> None:
    say(text, flush=True)
