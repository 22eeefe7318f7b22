"""Simulated ground under streamlog's own modules, for as long as a story lasts."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import streamlog.kafka.net.connection as server_connection
from streamlog.client import connection as client_connection
from streamlog.ingest.nats.server_link import ServerLink
from streamlog.nats import links
from tests.simulation.cluster.host import Host
from tests.simulation.cluster.machine import simulated
from tests.simulation.cluster.nats import SimNats, SimServerLink
from tests.simulation.cluster.ports import dialled
from tests.simulation.cluster.sockets import connected, read_warm
from tests.simulation.cluster.tcp import Tcp


@contextmanager
def ground(seed: int, tcp: Tcp, nats: SimNats) -> Iterator[None]:
    """What would touch the real network or disk touches the simulated one. No machine of an earlier story has had
    the last event: stories of a quorum alone have no such ground, and leave theirs behind.
    """
    SimServerLink.nats = nats
    Host.current = Host.latest = None
    replaced = [
        (server_connection.read_warm, read_warm),  # type: ignore[attr-defined]
        (client_connection.connected, partial(connected, tcp)),
        (links.dialled, partial(dialled, tcp)),
        (ServerLink, SimServerLink),
    ]
    try:
        with simulated(seed, replaced):
            yield
    finally:
        del SimServerLink.nats
        Host.current = Host.latest = None
