"""Ordering nodes over one stream, by seed: consenters that cut, followers that pull, and liars.

Nodes are killed between any two effects; clocks run at paces of their own, so time-outs race;
answers are lost or late; the configuration makes consenters of followers and followers of
consenters. What must hold: no node ever keeps a block that the stream is not cut into, and when the
trouble is over all have all of them.
"""

from collections.abc import Callable
from random import Random
from typing import Final

from streamlog.ledger.core.block import Block
from streamlog.ledger.core.chain import ChainTip, find_genesis
from streamlog.ledger.core.channel_config import BatchLimits, ChannelConfig, OrderingNode
from streamlog.ledger.core.channel_follower import Diverged, JoinPoint
from streamlog.ledger.core.consenter import AppendBlock, Consenter, RecordsConsumed
from streamlog.ledger.core.encoding import decode_block, encode_block
from streamlog.ledger.core.entry import (
    BLOCK_HEADER,
    KIND_HEADER,
    Message,
    configuration,
    time_to_cut,
)
from streamlog.ledger.core.signing import Signer
from streamlog.record.codec import Record
from tests.oracles.offline_cut import cut_stream
from tests.simulation.events import Events
from tests.simulation.lying_peer import LyingPeer
from tests.simulation.ordering_node import Peer, SimulatedNode

CHANNEL: Final = "simulated"
TROUBLE_UNTIL_MS: Final = 60_000
CALM_UNTIL_MS: Final = 1_500_000
"""Longer than anybody is avoided."""
JOIN_NUMBER: Final = 8
IMPOSTORS: Final = 0.1
STEPS_MAX: Final = 400_000
NAMES: Final = ("a", "b", "c", "d", "e")


class Broken(AssertionError):
    """A promise was."""


class OrderingWorld:
    """Trouble until ``TROUBLE_UNTIL_MS``; after that all must be well in the end."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.events = Events()
        self.story: list[str] = []
        self.stream: list[Record] = []
        self.is_calm = False
        self._loss = self.rng.choice((0.0, 0.05, 0.3))
        self._is_signed = self.rng.random() < 0.5
        self.signers = {name: Signer(name, name.encode() * 32) for name in NAMES}
        self._config = self._configured(0, self.rng.sample(NAMES, self.rng.randint(1, 4)))
        self.publish(configuration(self._config))
        genesis = find_genesis(self.stream)
        assert genesis is not None
        self.genesis: Block = genesis
        self.channel = CHANNEL
        self._truth = [encode_block(genesis)]
        self._reference = Consenter(ChainTip.of(genesis), self._config)
        self._cut_of = 0
        """So many records of the stream are in ``_truth``."""
        self._is_joined_by_block = self.rng.random() < 0.5
        self.nodes = {name: SimulatedNode(name, self) for name in NAMES}
        self.peers: dict[str, Peer] = dict(self.nodes)
        self.liars = [LyingPeer(f"liar-{i}", self) for i in range(self.rng.randint(0, 2))]
        self.peers |= {liar.name: liar for liar in self.liars}

    @property
    def events_run(self) -> int:
        return self.events.count

    @property
    def now_ms(self) -> int:
        return self.events.now_ms

    def run(self) -> None:
        """Raises Broken."""
        for node in self.nodes.values():
            self.after_ms(self.rng.uniform(0, 5_000), node.start)
        self._client()
        self._trouble()
        while self.now_ms < TROUBLE_UNTIL_MS:
            self._step()
        self.is_calm = True
        self.tell("calm")
        for node in self.nodes.values():
            node.revive()
        while not self._is_settled():
            if self.now_ms > CALM_UNTIL_MS or self.events_run > STEPS_MAX:
                raise Broken(f"no end: {[str(node) for node in self.nodes.values()]}")
            self._step()
        if self.truth() != [encode_block(b) for b in cut_stream(self.genesis, self.stream)]:
            raise Broken("what is cut depends on how much is read at a time")

    def _step(self) -> None:
        if not self.events.step():
            raise Broken("nobody wants anything any more")

    def _is_settled(self) -> bool:
        """All that can be cut is on all nodes, and nobody waits for a marker."""
        height = len(self.truth())
        tail = self.stream[-1].offset + 1
        return all(
            node.height == height and not node.is_pending and node.consumed(tail)
            for node in self.nodes.values()
        )

    # What the nodes have of the world

    def tell(self, line: str) -> None:
        """Of the story."""
        self.story.append(f"{self.now_ms:>8} {line}")

    def after_ms(self, delay_ms: float, call: Callable[[], None]) -> None:
        self.events.after(int(delay_ms * 1_000), call)

    def publish(self, message: Message) -> None:
        """Into the stream; now and then an offset is skipped, as control batches do."""
        last = self.stream[-1].offset if self.stream else -1
        offset = last + (1 if self.rng.random() < 0.95 else 2)
        record = Record(offset, self.now_ms, message.key, message.value, message.headers)
        self.stream.append(record)

    def post(self, message: Message) -> None:
        """After a while, if it does not get lost."""
        if not self.is_lost():
            self.after_ms(self.delay_ms(), lambda: self.publish(message))

    def is_lost(self) -> bool:
        return not self.is_calm and self.rng.random() < self._loss

    def delay_ms(self) -> float:
        """Mostly short; sometimes long enough for a time-out."""
        if self.is_calm or self.rng.random() < 0.95:
            return self.rng.uniform(0.1, 20)
        return self.rng.uniform(20, 4_000)

    def truth(self) -> list[bytes]:
        """The stream as anybody would cut it offline."""
        if self._cut_of != len(self.stream):
            added = self.stream[self._cut_of :]
            self._cut_of = len(self.stream)
            for effect in self._reference.step(RecordsConsumed(added)):
                if isinstance(effect, AppendBlock):
                    self._truth.append(encode_block(effect.block))
        return self._truth

    def honest_blocks(self) -> list[bytes]:
        """The longest ledger on a disk."""
        return max((node.kept for node in self.nodes.values()), key=len)

    def join_block(self) -> JoinPoint | None:
        """By which a new node joins; None: by none, or none of that number is on a disk yet."""
        blocks = self.honest_blocks()
        if self._is_joined_by_block and len(blocks) > JOIN_NUMBER:
            return JoinPoint(JOIN_NUMBER, decode_block(blocks[JOIN_NUMBER]).hash)
        return None

    def answering(self, name: str) -> Peer:
        """Who answers for a peer: where blocks are signed, now and then an impostor."""
        if self.liars and self._is_signed and not self.is_calm and self.rng.random() < IMPOSTORS:
            return self.rng.choice(self.liars)
        return self.peers[name]

    def is_found_out(self, asker: str) -> bool:
        """Does this node notice a chain whose hashes are right, and that is not the stream's?"""
        return self._is_signed or self.nodes[asker].is_onboarding

    def on_diverged(self, node: str, effect: Diverged) -> None:
        """Not while others are honest, and asked."""
        self.tell(f"{node}: {effect}")

    def check(self, node: str, number: int, encoded: bytes) -> None:
        """A block that a node keeps for good."""
        truth = self.truth()
        if number >= len(truth) or truth[number] != encoded:
            raise Broken(f"{node} keeps a block {number} that the stream is not cut into")

    # What happens to them

    def _client(self) -> None:
        if self.is_calm:
            return
        for _ in range(self.rng.choice((1, 1, 1, 5))):
            self.publish(Message(None, self.rng.randbytes(self.rng.choice((3, 30, 300)))))
        self.after_ms(self.rng.expovariate(1 / 300), self._client)

    def _trouble(self) -> None:
        if self.is_calm:
            return
        kinds = (self._kill, self._kill, self._reconfigure, self._mark, self._mislead)
        self.rng.choice(kinds)()
        self.after_ms(self.rng.expovariate(1 / 2_000), self._trouble)

    def _kill(self) -> None:
        node = self.nodes[self.rng.choice(NAMES)]
        node.kill()
        self.after_ms(self.rng.uniform(0, 8_000), node.revive)

    def _reconfigure(self) -> None:
        """Mostly the next configuration; sometimes two at once, or one that is stale."""
        for _ in range(self.rng.choice((1, 1, 2))):
            names = self.rng.sample(NAMES, self.rng.randint(1, 4))
            if self.rng.random() < 0.9:
                self._config = self._configured(self._config.sequence + 1, names)
                self.tell(f"configuration {self._config.sequence}: {names}")
                self.publish(configuration(self._config))
            else:
                self.publish(configuration(self._configured(self._config.sequence, names)))

    def _configured(self, sequence: int, names: list[str]) -> ChannelConfig:
        limits = BatchLimits(
            batch_size=self.rng.choice((1, 3, 10)),
            batch_timeout_ms=self.rng.choice((50, 500, 3_000)),
            preferred_max_bytes=self.rng.choice((200, 2_000)),
        )
        signed = self._is_signed
        nodes = tuple(
            OrderingNode(
                name=name,
                public_key=self.signers[name].identity.public_key if signed else None,
            )
            for name in sorted(names)
        )
        return ChannelConfig(channel=CHANNEL, sequence=sequence, limits=limits, consenters=nodes)

    def _mark(self) -> None:
        """Somebody posts markers that nobody asked for."""
        self.publish(time_to_cut(self.rng.randint(0, 2 * len(self.truth())), "somebody"))

    def _mislead(self) -> None:
        """Records that claim to be what they are not."""
        kind, number = self.rng.choice(
            ((b"time-to-cut", b"-1"), (b"configuration", b"{}"), (b"anything", b""))
        )
        headers = ((KIND_HEADER, kind), (BLOCK_HEADER, number))
        self.publish(Message(None, number, headers))
