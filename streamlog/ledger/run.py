"""An ordering node as a process: its loop, its signals, its end."""

import asyncio
import logging
import signal
from collections.abc import Callable, Coroutine
from typing import Any, Final

from streamlog.ledger.folder import ChannelFile
from streamlog.ledger.node import LedgerNode

logger = logging.getLogger(__name__)

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

Service = Callable[[], Coroutine[Any, Any, None]]


def run_node(node: LedgerNode, *wanted: ChannelFile, beside: tuple[Service, ...] = ()) -> None:
    """Until a signal; ``beside`` runs as long. Raises ConfigError before anything is served."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # it would end a process that is just starting
    node.open(*wanted)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_run(node, beside))


async def _run(node: LedgerNode, beside: tuple[Service, ...]) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, stopping.set)
    loop.add_signal_handler(signal.SIGHUP, _reload)
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(service()) for service in (node.run, *beside)]
        tell = tasks.create_task(_tell_ready(node))
        await stopping.wait()
        logger.info("stopping")
        for task in (*running, tell):
            task.cancel()


def _reload() -> None:
    """What `systemctl reload` sends, and a terminal that is closed: no reason to end."""
    logger.info("SIGHUP: files of certificates and keys are read again when they change")


async def _tell_ready(node: LedgerNode) -> None:
    await node.ready.wait()
    names = list(node.registrar.channels)
    logger.info("ledger ready", extra={"node": node.settings.node, "channels": names})


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
