"""An ordering node with everything it comes with: following, metrics, their HTTP port."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from nats.aio.client import Client

from streamlog.ledger.channel import Channel
from streamlog.ledger.core.follower import JoinPoint
from streamlog.ledger.following import LedgerFollower
from streamlog.ledger.metrics import LedgerMetrics
from streamlog.ledger.node import LedgerNode, NodeSettings
from streamlog.ledger.run import Service
from streamlog.ledger.site import HttpListener, LedgerSite


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
