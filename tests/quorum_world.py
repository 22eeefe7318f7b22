"""Quorums of real cores on one heap of events: one seed, one story."""

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from streamlog.model import NodeId
from streamlog.raft.node import RaftSettings
from tests.quorum_checkers import Checkers
from tests.quorum_host import Call, Host
from tests.quorum_log import configured, recorded


@dataclass
class Chaos:
    """How bad it is."""

    loss: float = 0.0
    duplicates: float = 0.0
    delay_ms: int = 2
    slow: float = 0.0
    """Of the messages take up to a second."""


class World:
    """``hosts`` of which the first ``voters`` are configured to vote."""

    def __init__(
        self,
        seed: int,
        *,
        hosts: int = 3,
        voters: int = 3,
        starts: bool = True,
        knows_folders: bool = False,
    ) -> None:
        """``knows_folders``: those of the voters need not be learned by a first election."""
        self.rng = random.Random(seed)
        self.now_ms = 0
        self.chaos = Chaos()
        self.cut: set[tuple[NodeId, NodeId]] = set()
        """Nothing comes through, one way."""
        self.configured = configured(*range(1, voters + 1))
        self.settings = RaftSettings()
        self.fetch_entries = 5
        """At most so many in an answer."""
        self.syncs_aside = self.rng.random() < 0.3
        """Leaders go on while their own records are synced."""
        self.checkers = Checkers(self)
        self.story: list[str] = []
        self.sent = 0
        """Requests so far."""
        self.calls: list[Call] = []
        """Those that wait for an answer."""
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        self.hosts = {NodeId(it): Host(self, NodeId(it)) for it in range(1, hosts + 1)}
        if knows_folders:
            keys = [host.key for host in self.hosts.values()]
            self.configured = recorded(self.configured, *keys)
        if starts:
            self.start(*self.hosts)

    def start(self, *ids: int) -> None:
        for node_id in ids:
            self.hosts[NodeId(node_id)].start()

    def crash(self, *ids: int) -> None:
        for node_id in ids:
            self.hosts[NodeId(node_id)].crash()

    def cut_off(self, *ids: int) -> None:
        """Both ways, from all others."""
        for one in ids:
            for other in self.hosts.keys() - set(ids):
                self.cut |= {(NodeId(one), other), (other, NodeId(one))}

    def tell(self, text: str) -> None:
        self.story.append(f"{self.now_ms} {text}")

    def after(self, delay_ms: int, call: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (self.now_ms + delay_ms, self._count, call))

    def run(self, for_ms: int) -> None:
        self.run_until(lambda: False, for_ms)

    def run_until(self, condition: Callable[[], bool], within_ms: int) -> bool:
        """Whether it came true in time."""
        end_ms = self.now_ms + within_ms
        while not condition():
            if not self._events or self._events[0][0] > end_ms:
                self.now_ms = end_ms
                return condition()
            self.now_ms, _, call = heapq.heappop(self._events)
            call()
        return True

    # The network

    def deliver(self, source: NodeId, target: NodeId, call: Callable[[], None]) -> None:
        """Perhaps, some time, maybe twice."""
        rng, chaos = self.rng, self.chaos
        copies = 2 if rng.random() < chaos.duplicates else 1
        for _ in range(copies):
            if (source, target) in self.cut or rng.random() < chaos.loss:
                continue
            delay_ms = rng.randint(0, chaos.delay_ms)
            if rng.random() < chaos.slow:
                delay_ms += rng.randint(0, 1_000)
            self.after(delay_ms, call)

    def reset(self, target: Host) -> None:
        """Its connections are closed, which the others notice, if the network lets them."""
        calls, self.calls = self.calls, []
        for call in calls:
            if call.target is target:
                end = partial(call.end, None, gone=True)
                self.deliver(target.node_id, call.source.node_id, end)
            else:
                self.calls.append(call)

    # What one looks at

    def up(self) -> list[Host]:
        return [host for host in self.hosts.values() if host.is_up]

    def active(self) -> list[Host]:
        """Controllers, by what they think themselves."""
        return [host for host in self.up() if host.raft.is_active]

    def is_well(self) -> bool:
        """One leads, and all others have what it has committed."""
        active, hosts = self.active(), self.up()
        return (
            len(hosts) == len(self.hosts)
            and len(active) == 1
            and all(host.raft.epoch == active[0].raft.epoch for host in hosts)
            and len({host.raft.high_watermark for host in hosts}) == 1
            and active[0].raft.high_watermark == active[0].disk.log.end_offset
        )

    def heal(self) -> None:
        self.cut.clear()
        self.chaos = Chaos()
        for host in self.hosts.values():
            if not host.is_up:
                host.start()
