"""Ordering nodes over one totally ordered log, by seed: slow, crashing, and racing to cut."""

from bisect import bisect_left
from collections.abc import Callable
from random import Random
from typing import Final

from streamlog.ledger.core.chain import find_genesis
from streamlog.ledger.core.channel_config import BatchLimits, ChannelConfig
from streamlog.ledger.core.consenter import (
    Effect,
    PostTimeToCut,
    StartTimer,
    StopTimer,
)
from streamlog.ledger.core.encoding import encode_block
from streamlog.ledger.core.entry import (
    KIND_HEADER,
    Message,
    configuration,
    header_of,
    marked,
    signed,
    time_to_cut,
)
from streamlog.ledger.core.signing import Signer
from streamlog.ledger.core.verifier import verify_chain
from streamlog.record.codec import Record
from tests.ledger_stream import ANN, BOB, EVE, channel, limits, placed
from tests.naive_ledger import NaiveLedger
from tests.oracles.offline_cut import cut_stream
from tests.ordering_node import Crashed, OrderingNode
from tests.simulation.events import Events

MS: Final = 1_000
STORMY_US: Final = 2_000 * MS
"""So long everything goes wrong that can; then all must come to rest."""
EVENTS_MAX: Final = 200_000


class Orderer:
    """One ordering node: its reads, its one timer, its crashes."""

    def __init__(self, name: str, world: "LedgerStory", rng: Random) -> None:
        self.name = name
        self.world = world
        self.rng = rng
        self.run_max = rng.choice((1, 3, 20, 500))
        self.read_us = rng.choice((10, 50, 200)) * MS
        self.clock_rate = rng.choice((0.5, 1.0, 1.0, 1.0, 3.0))
        self.mortality = rng.choice((0.0, 0.02, 0.1))
        self.node: OrderingNode | None = None
        self.is_up = True
        self.checked = 0
        """So many of its blocks have been compared; what is kept is only added to."""
        self.timer = 0
        """Grows with each timer that is set or stopped: an older one's time-out is void."""

    def read(self) -> None:
        """Again and again, as long as it lives."""
        if not self.is_up:
            return
        try:
            self._read()
        except Crashed:
            self._crash()
            return
        self.world.events.after(self.rng.randint(1, self.read_us), self.read)

    def _read(self) -> None:
        if self.node is None:
            genesis = find_genesis(self.world.log)
            if genesis is None:
                self.world.publish(self.world.own_genesis(self.rng))
                return
            self.node = OrderingNode(genesis, self._fate, self._carry_out)
        start, at_once = self.node.next_offset, self.rng.randint(1, self.run_max)
        first = bisect_left(self.world.log, start, key=lambda record: record.offset)
        end = first + at_once
        self.node.consume(self.world.log[first:end], has_more=end < len(self.world.log))
        self.world.check(self)

    def _crash(self) -> None:
        assert self.node is not None
        self.world.tell(f"{self.name} dies with {len(self.node.kept)} blocks")
        self.world.check(self)
        self.is_up = False
        self.timer += 1
        self.world.events.after(self.rng.randint(1, 500 * MS), self._restart)

    def _restart(self) -> None:
        assert self.node is not None
        self.node.restart()
        self.is_up = True
        self.read()

    def _fate(self) -> None:
        if self.world.is_stormy and self.rng.random() < self.mortality:
            raise Crashed

    def _carry_out(self, effect: Effect) -> None:
        if isinstance(effect, StartTimer | StopTimer):
            self.timer += 1
        if isinstance(effect, StartTimer):
            timer, number = self.timer, effect.number
            delay_us = int(effect.after_ms * MS * self.clock_rate)
            self.world.events.after(delay_us, lambda: self._expire(timer, number))
        elif isinstance(effect, PostTimeToCut):
            self.world.tell(f"{self.name} posts TTC-{effect.number}")
            self.world.publish(time_to_cut(effect.number, self.name))

    def _expire(self, timer: int, number: int) -> None:
        if timer != self.timer or not self.is_up or self.node is None:
            return
        try:
            self.node.expire(number)
        except Crashed:
            self._crash()


class LedgerStory:
    """Clients, administrators and ordering nodes do as they like, until the storm is over."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.story: list[str] = []
        self.events = Events()
        self.log: list[Record] = []
        """Committed: the one order that there is."""
        self.end_offset = 0
        self.chain: list[bytes] = []
        """The longest one that any node has kept."""
        self.flight_us = self.rng.choice((0, 5, 300)) * MS
        """How long a record may take to the log; with 0, time-outs race to the microsecond."""
        self.is_signed = self.rng.random() < 0.2
        self.timeout_ms = self.rng.choice((1, 20, 200))
        count = self.rng.choice((1, 3, 3, 12, 30))
        self.orderers = [Orderer(f"n{i}", self, Random(self.rng.random())) for i in range(count)]

    @property
    def events_run(self) -> int:
        return self.events.count

    @property
    def is_stormy(self) -> bool:
        return self.events.now_us < STORMY_US

    def tell(self, line: str) -> None:
        self.story.append(f"{self.events.now_us / MS:10.3f} {line}")

    def run(self) -> None:
        for orderer in self.orderers:
            self.events.after(self.rng.randint(0, 50 * MS), orderer.read)
        for act in (self.write, self.write, self.configure, self.meddle):
            self.events.after(self.rng.randint(0, 100 * MS), act)
        while self.events.step():
            assert self.events.count < EVENTS_MAX, "all nodes come to rest"
            if not self.is_stormy and self.is_at_rest():
                break
        self.check_the_end()

    # What is written

    def own_genesis(self, rng: Random) -> Message:
        """Each node has limits of its own in mind; the first one in the log wins."""
        identities = (ANN.identity, BOB.identity) if self.is_signed else ()
        return configuration(channel(limits=self.some_limits(rng), writers=identities))

    def some_limits(self, rng: Random) -> BatchLimits:
        batch_size, preferred = rng.choice((1, 2, 5, 40)), rng.choice((100, 300, 1 << 20))
        return limits(batch_size, preferred, timeout_ms=self.timeout_ms)

    def publish(self, message: Message) -> None:
        """It may be lost in the storm, arrive twice, and be overtaken by others."""
        copies = self.rng.choice((0, 1, 1, 1, 2)) if self.is_stormy else 1
        for _ in range(copies):
            self.events.after(self.rng.randint(0, self.flight_us), lambda: self.commit(message))

    def commit(self, message: Message) -> None:
        """Offsets may have gaps: what is no record takes them."""
        self.end_offset += self.rng.choice((0, 0, 0, 0, 1))
        self.log.append(placed(message, self.end_offset))
        self.tell(f"{self.end_offset}: {marked(self.log[-1]) or 'ordinary'}")
        self.end_offset += 1

    def write(self) -> None:
        message = Message(None, self.rng.randbytes(self.rng.choice((0, 5, 50, 150, 400))))
        signer: Signer = self.rng.choice((ANN, ANN, BOB, EVE))
        if self.is_signed and self.rng.random() < 0.9:
            message = signed(message, "c", signer)
        self.publish(message)
        self.again(self.write, self.rng.choice((1, 1, 10, 100, 500)))

    def configure(self) -> None:
        """An administrator goes by what one of the nodes has, which may be old by now."""
        node = self.rng.choice(self.orderers).node
        if node is not None:
            now: ChannelConfig = node.consenter.config
            changed = {"sequence": now.sequence + 1, "limits": self.some_limits(self.rng)}
            update = ChannelConfig.model_validate({**dict(now), **changed})
            self.publish(configuration(update, self.rng.choice((ANN, BOB, EVE))))
        self.again(self.configure, 500)

    def meddle(self) -> None:
        """Somebody posts markers and nonsense."""
        ahead = self.rng.choice((-1, 0, 1, 5))
        marker = time_to_cut(max(0, len(self.chain) + ahead), "x")
        self.publish(self.rng.choice((marker, Message(None, b"", ((KIND_HEADER, b"?"),)))))
        self.again(self.meddle, 100)

    def again(self, act: Callable[[], None], within_ms: int) -> None:
        if self.is_stormy:
            self.events.after(self.rng.randint(1, within_ms * MS), act)

    # What must hold

    def check(self, orderer: Orderer) -> None:
        """No two nodes ever have different blocks of one number."""
        assert orderer.node is not None
        kept, start = orderer.node.kept, orderer.checked
        common = min(len(kept), len(self.chain))
        assert kept[start:common] == self.chain[start:common], f"{orderer.name} has another chain"
        self.chain.extend(kept[common:])
        orderer.checked = len(kept)

    def is_at_rest(self) -> bool:
        """All have read everything, and nothing is pending: each record is in its block."""
        return all(
            orderer.is_up
            and orderer.node is not None
            and orderer.node.next_offset >= self.end_offset
            and orderer.node.consenter.pending_count == 0
            for orderer in self.orderers
        )

    def check_the_end(self) -> None:
        for each in self.orderers:
            assert each.node and each.node.kept == self.chain, f"{each.name} has another chain"
        genesis = find_genesis(self.log)
        assert genesis is not None
        offline = [encode_block(block) for block in cut_stream(genesis, self.log)]
        assert self.chain == offline, "not the offline cut"
        assert self.chain == NaiveLedger(self.log).cut_all(), "not the naive chain"
        report = verify_chain(self.chain, channel="c")
        if not self.is_signed:
            ordinary = [r for r in self.log if header_of(r.headers, KIND_HEADER) is None]
            assert report.records == len(ordinary), "every record is in one block"
