"""A node as a process: its loop, its signals, its end."""

import asyncio
import contextlib
import gc
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final
from uuid import uuid4

from prometheus_client import disable_created_metrics

from streamlog.app.extensions import PACKAGE, stale_extensions
from streamlog.app.listen_check import check_exposure
from streamlog.app.logs import configure_logs
from streamlog.app.node import Node
from streamlog.app.supervisor import STOPPING_AT_ONCE, Leash
from streamlog.condition import FAULT
from streamlog.config import MachineNode
from streamlog.errors import ConfigError, StreamlogError
from streamlog.log.encryption.key_ring import KeyRing
from streamlog.log.encryption.key_source import key_ring
from streamlog.log.storage.permissions import set_umask
from streamlog.metadata.nodes.data_dir import DataDir
from streamlog.model import NodeId

OPEN_FILES_MAX: Final = 1 << 20
"""No more is asked for, where there is no limit at all."""
YOUNG_MAX: Final = 100_000
"""More objects than one read of the NATS socket makes, whatever number of partitions is in it."""


def allow_open_files() -> None:
    """As many as may be: a log that is in use keeps its last file open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES_MAX if hard == resource.RLIM_INFINITY else hard
    if soft not in (resource.RLIM_INFINITY, wanted):
        # macOS has another limit, and no name for it.
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


def collect_seldom() -> None:
    """Reference counts free what the hot path makes, so looking for cycles among it is in vain.

    At the default of 700 objects a read of 400 partitions makes Python look twice, and what
    happens to be in flight then ages, until all partitions of the node are looked at: for a second,
    where there are 10,000.
    """
    gc.set_threshold(YOUNG_MAX, *gc.get_threshold()[1:])


def leave_garbage() -> None:
    """The process ends: its memory goes with it. To look through all of it for cycles first, and to
    take them apart, took 7 s of a stop with 20,000 partitions.
    """
    gc.disable()
    gc.freeze()


logger = logging.getLogger(__name__)

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


def run_node(node: MachineNode, leash: Leash | None = None) -> None:
    """Run until a signal, or the end of the ``leash``. A second signal does not wait: the next start
    recovers what is missing.
    """
    settings = node.settings
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # it would end a process that is just starting
    if leash is not None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})  # as the supervisor left it
        leash.watch(settings.node.stop_timeout_ms / 1000)
    disable_created_metrics()  # type: ignore[no-untyped-call]  # noise that doubles a scrape
    set_umask()
    own_id = settings.node.id if node.machine is not None else None
    configure_logs(settings.logging.format, settings.logging.level, node_id=own_id)
    check_extensions()
    check_exposure(settings)
    allow_open_files()
    collect_seldom()
    node_id = NodeId(settings.node.id)
    keys = key_ring(settings.encryption.keys, settings.encryption.active_key)
    with (
        DataDir.open(settings.node.data_dir, node_id, cluster_id=settings.cluster.id) as data_dir,
        asyncio.Runner(loop_factory=_loop_factory(settings.node.event_loop)) as runner,
    ):
        clean = runner.run(_run(node, data_dir, keys, leash))
        if clean:
            data_dir.end_run()
    leave_garbage()
    sys.exit(0 if clean else 1)


def check_extensions(package: Path = PACKAGE) -> None:
    """Raises ConfigError where compiled extensions do not fit the rest of the program."""
    stale = stale_extensions(package)
    if stale:
        raise ConfigError(
            "installation",
            f"compiled from other sources than are installed: {', '.join(stale)}",
            "install streamlog again, or in a checkout: setup.py build_ext --inplace --force",
        )


async def _run(
    machine_node: MachineNode, data_dir: DataDir, keys: KeyRing, leash: Leash | None
) -> bool:
    settings, machine = machine_node
    incarnation = uuid4()
    tail_lost = data_dir.begin_run(incarnation)
    node = Node(settings, data_dir, incarnation, tail_lost=tail_lost, keys=keys, machine=machine)
    loop = asyncio.get_running_loop()
    stop = NodeStop(node, loop)
    if leash is not None:
        leash.hold(stop.by_supervisor)
    for number in SIGNALS:
        loop.add_signal_handler(number, stop.by_signal, number)
    loop.add_signal_handler(signal.SIGHUP, _reload, node)
    try:
        return await node.run()
    except BaseExceptionGroup as group:
        _, unknown = group.split(StreamlogError)
        if unknown is None:
            raise  # the command line says it in one line
        logger.critical(FAULT.logged_as("node failed"), exc_info=True)
        sys.exit(1)


def _reload(node: Node) -> None:
    """What `systemctl reload` sends, and a terminal that is closed: no reason to end."""
    if node.has_certificates:
        node.renewal.ask()
    else:
        logger.info("SIGHUP: there are no certificates to load again")


class NodeStop:
    """What stops a node: a signal, or the supervisor. A second signal ends it at once."""

    def __init__(self, node: Node, loop: asyncio.AbstractEventLoop) -> None:
        self._node = node
        self._loop = loop
        self._is_signalled = False

    def by_signal(self, number: signal.Signals) -> None:
        if self._is_signalled:
            logger.warning(STOPPING_AT_ONCE, extra={"signal": number.name})
            sys.stderr.flush()
            os._exit(128 + number)
        self._is_signalled = True
        self._stop(number.name)

    def by_supervisor(self) -> None:
        """Called in another thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: the node has stopped
            self._loop.call_soon_threadsafe(self._stop, "supervisor")

    def _stop(self, by: str) -> None:
        if not self._node.stopping.is_set():
            logger.info("stopping", extra={"signal": by})
            self._node.stopping.set()


def _loop_factory(wanted: str) -> Callable[[], asyncio.AbstractEventLoop] | None:
    if wanted == "asyncio":
        return None
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
