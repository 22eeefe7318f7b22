"""An ordering node as a process: its loop, its signals, its end.

``equipped`` builds the node with its follower, its metrics and their HTTP port.
"""

import asyncio
import logging
import signal
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, NamedTuple

from nats.aio.client import Client

from streamlog.ledger.channel.channel import Channel
from streamlog.ledger.core.channel_follower import JoinPoint
from streamlog.ledger.following import LedgerFollower
from streamlog.ledger.metrics import LedgerMetrics
from streamlog.ledger.node import LedgerNode, NodeSettings
from streamlog.ledger.site import HttpListener, LedgerSite
from streamlog.ledger.storage.folder import ChannelFile

logger = logging.getLogger(__name__)

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

Service = Callable[[], Coroutine[Any, Any, None]]


def run_node(node: LedgerNode, *wanted: ChannelFile, beside: tuple[Service, ...] = ()) -> None:
    """Until a signal; ``beside`` runs as long. Raises ConfigError before anything is served."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # it would end a process that is just starting
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_run(node, wanted, beside))


async def _run(
    node: LedgerNode, wanted: tuple[ChannelFile, ...], beside: tuple[Service, ...]
) -> None:
    await node.open(*wanted)
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


class AssembledNode(NamedTuple):
    """A node, and what is to run beside it."""

    node: LedgerNode
    beside: tuple[Service, ...]


def equipped(
    settings: NodeSettings,
    *,
    peers: Sequence[str] = (),
    joins: Mapping[str, JoinPoint] | None = None,
    http: HttpListener | None = None,
) -> AssembledNode:
    """``peers``: nodes to follow beside the consenters; ``joins``: by channel, where it joins.

    Without ``http`` nothing listens.
    """

    def client() -> Client:
        assert node.endpoints.client is not None, "connected before any channel runs"
        return node.endpoints.client

    def channels() -> list[Channel]:
        return list(node.registrar.channels.values())

    metrics = LedgerMetrics(channels)
    following = LedgerFollower(
        client,
        node=settings.node,
        signer=settings.signer,
        peers=peers,
        joins=joins or {},
    )
    join_heights = {channel: join.number + 1 for channel, join in (joins or {}).items()}
    node = LedgerNode(settings, follow=following, join_heights=join_heights, observer=metrics)
    if http is None:
        return AssembledNode(node, ())
    site = LedgerSite(http, metrics=metrics, channels=channels)
    return AssembledNode(node, (site.run,))
