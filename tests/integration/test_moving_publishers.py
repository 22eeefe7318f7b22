"""Publishers that change between the ports of three nodes and nats-servers, while nodes and nats-servers
are killed, links are cut, and leaders change: each message is stored once, in its publisher's order.
"""

import random
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from tests.history import Lane
from tests.integration.campaign import Acks
from tests.integration.cut_line import CutLine
from tests.integration.moving_publishers import campaign_of_moving
from tests.integration.victims import victims
from tests.secured_nats import NatsCluster
from tools.nodes.cluster import Cluster, NoNats
from tools.nodes.node_process import Settings
from tools.nodes.ports import free_port
from tools.nodes.server_process import NatsServer

LANES: Final = [Lane("orders"), Lane("parts", 0), Lane("parts", 1)]
PORTS: Final[Settings] = {"nats_listen": {}}
HOLD_S: Final = 1.5
"""Longer than publishers wait for an ack."""
PAUSE_S: Final = 0.005

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <StreamWriter:ResourceWarning")
"""nats-py leaves them behind where a server is killed in the midst of a handshake."""


class LeafHubs(NatsCluster):
    """Two nats-servers with a route, each of which takes leafnodes."""

    def __init__(self, directory: Path) -> None:
        self.leaf_ports = [free_port(), free_port()]
        super().__init__(directory, size=2)

    def _routes(self, number: int, without: int | None = None) -> str:
        listen = f'listen: "127.0.0.1:{self.leaf_ports[number]}"'
        return f"leafnodes {{ {listen} }}\n" + super()._routes(number, without)

    @property
    def url(self) -> str:
        return f"nats-leaf://127.0.0.1:{self.leaf_ports[0]}"


@dataclass
class World:
    cluster: Cluster
    lines: Mapping[int, CutLine]
    """By node: the way of other nodes to its port."""
    urls: Mapping[str, str]
    """Of the ways that publishers take."""
    servers: list[NatsServer]


@contextmanager
def ports_alone(folder: Path) -> Iterator[World]:
    """Nodes among themselves."""
    with _world(Cluster(folder, nats=NoNats(), settings=PORTS), []) as world:
        yield world


@contextmanager
def leafnodes(folder: Path) -> Iterator[World]:
    """Nodes that are leafnodes of two nats-servers, some of the one, some of the other."""
    hubs = LeafHubs(folder / "hubs")
    cluster = Cluster(folder, nats=hubs, settings=PORTS)
    cluster[3].add_settings(nats={"servers": [f"nats-leaf://127.0.0.1:{hubs.leaf_ports[1]}"]})
    with _world(cluster, list(hubs.servers)) as world:
        yield world


@contextmanager
def clients_of_nats(folder: Path) -> Iterator[World]:
    """Nodes that are clients of a nats-server, and have ports."""
    server = NatsServer(folder)
    with _world(Cluster(folder, nats=server, settings=PORTS), [server]) as world:
        yield world


@contextmanager
def _world(cluster: Cluster, servers: list[NatsServer]) -> Iterator[World]:
    lines = {}
    for number, node in cluster.nodes.items():
        lines[number] = CutLine(int(node.port_url.rpartition(":")[2]))
        node.add_settings(nats_listen={"advertised_port": lines[number].port})
    urls = {f"port {number}": node.port_url for number, node in cluster.nodes.items()}
    urls |= {f"server {number}": server.url for number, server in enumerate(servers)}
    try:
        with cluster:
            yield World(cluster, lines, urls, servers)
    finally:
        for line in lines.values():
            line.close()


class Faults:
    """What is done to a world; each leaves it whole, and all in sync."""

    def __init__(self, world: World, acks: Acks) -> None:
        self._world = world
        self._cluster = world.cluster
        self._acks = acks
        self._pause = threading.Event()

    def kill(self, kind: str) -> None:
        chosen = victims(self._cluster, kind, random.choice(LANES))
        self._cluster.kill(*chosen)
        self._pause.wait(random.uniform(0.0, 1.0))
        self._cluster.start(*chosen)

    def cut(self) -> None:
        """The links to a leader end, now and again."""
        line = self._leaders_line()
        for _ in range(4):
            line.reset()
            self._pause.wait(random.uniform(0.05, 0.4))

    def hang(self) -> None:
        """The links to a leader say nothing; what was held back arrives late, or never. It leads all the
        while: a copy that comes when it leads again would be known by its id alone.
        """
        self._cluster.wait_settled(LANES)
        line = self._leaders_line()
        line.hold()
        self._pause.wait(HOLD_S)
        if random.random() < 0.5:
            line.reset()
        line.flow()

    def hang_while_the_leader_changes(self) -> None:
        """What was sent to a former leader arrives there when another one has led for a while."""
        lane = random.choice(LANES)
        leader = self._cluster.leader(lane)
        line = self._world.lines[leader]
        line.hold()
        self._pause.wait(0.2)
        self._elect(lane, leader % 3 + 1)
        self._acks.go_on()
        line.flow()
        self._elect(lane, leader)

    def move_leaders(self) -> None:
        for lane in LANES:
            self._elect(lane, self._cluster.leader(lane) % 3 + 1)

    def kill_a_server(self) -> None:
        if self._world.servers:
            server = random.choice(self._world.servers)
            server.kill()
            self._pause.wait(random.uniform(0.0, 1.0))
            server.start()

    def _leaders_line(self) -> CutLine:
        return self._world.lines[self._cluster.leader(random.choice(LANES))]

    def _elect(self, lane: Lane, leader: int) -> None:
        place = (lane.stream, str(lane.partition))
        self._cluster.command("cluster", "elect-leader", *place, "--leader", str(leader))

    def all(self) -> list[Callable[[], None]]:
        kinds = ("leader", "follower", "controller", "two")
        return [
            *(partial(self.kill, kind) for kind in kinds),
            self.cut,
            self.hang,
            self.hang_while_the_leader_changes,
            self.move_leaders,
            self.kill_a_server,
        ]


MakeWorld = Callable[[Path], AbstractContextManager[World]]
WORLDS: Final[list[MakeWorld]] = [leafnodes, clients_of_nats, ports_alone]


@pytest.mark.parametrize("make", WORLDS[:2])
async def test_a_publisher_that_moves_is_heard_once(tmp_path: Path, make: MakeWorld) -> None:
    with make(tmp_path) as world:
        acks = Acks()
        faults = Faults(world, acks)

        def strike() -> None:
            faults.hang_while_the_leader_changes()
            faults.cut()
            faults.kill("leader")
            faults.kill_a_server()
            world.cluster.wait_settled(LANES)

        acked_by = await campaign_of_moving(
            world.cluster, world.urls, LANES, strike, acks=acks, pause_s=PAUSE_S
        )
    assert min(acked_by.values()) > 20, acked_by


@pytest.mark.slow
@pytest.mark.parametrize("sync", ["commit", "os"])
@pytest.mark.parametrize("make", WORLDS)
async def test_a_publisher_that_moves_is_heard_once_for_long(
    tmp_path: Path, make: MakeWorld, sync: str
) -> None:
    with make(tmp_path) as world:
        acks = Acks()
        faults = Faults(world, acks)

        def strike() -> None:
            for _ in range(4):
                for fault in random.sample(every := faults.all(), len(every)):
                    fault()
                    if random.random() < 0.7:
                        world.cluster.wait_settled(LANES)
            world.cluster.wait_settled(LANES)

        acked_by = await campaign_of_moving(
            world.cluster,
            world.urls,
            LANES,
            strike,
            acks=acks,
            settings={"sync": sync},
            pause_s=PAUSE_S,
            patience_s=60.0,
        )
    assert min(acked_by.values()) > 20, acked_by
