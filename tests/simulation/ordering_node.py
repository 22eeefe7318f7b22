"""A node of the ordering world: what is on its disk survives it, the rest does not."""

from bisect import bisect_left
from typing import TYPE_CHECKING, Final, Protocol

from streamlog.errors import CorruptBlock
from streamlog.ledger.core import channel_follower as following
from streamlog.ledger.core import consenter as cutting
from streamlog.ledger.core.chain import ChainTip
from streamlog.ledger.core.channel_config import ChannelConfig
from streamlog.ledger.core.channel_follower import ChannelFollower, FollowerLimits, JoinPoint
from streamlog.ledger.core.consenter import Consenter
from streamlog.ledger.core.encoding import decode_block, encode_block
from streamlog.ledger.core.entry import time_to_cut
from streamlog.ledger.core.signing import BlockSignature
from streamlog.ledger.core.verifier import ChainVerifier

if TYPE_CHECKING:
    from tests.simulation.ordering_world import OrderingWorld

READ_MAX: Final = 20
DIES_AMID_EFFECTS: Final = 0.002
GIVEN = tuple[bytes, BlockSignature | None]


class Peer(Protocol):
    """Whoever may be asked for blocks."""

    name: str

    def tell_height(self) -> int | None:
        """None: no answer."""

    def give(self, asker: str, start: int, stop: int) -> list[GIVEN] | None:
        """None: it refuses."""


class SimulatedNode:
    """Consenter or follower, as the newest configuration on its own chain has it."""

    def __init__(self, name: str, world: "OrderingWorld") -> None:
        self.name = name
        self._world = world
        self._pace = world.rng.uniform(0.5, 2.0)  # of its clock
        self._disk: list[bytes] = []
        self._checked = 0  # blocks that were found to be right
        self._life = 0  # what was meant for another one is lost
        self._is_up = False
        self._consenter: Consenter | None = None
        self._follower: ChannelFollower | None = None
        self._join: JoinPoint | None = None
        self._signatures: dict[bytes, BlockSignature] = {}
        self._timer = 0
        self._pull = 0
        """The number of the pull whose blocks are still taken."""

    def __str__(self) -> str:
        role = "cuts" if self._consenter else "follows" if self._follower else "is down"
        return f"{self.name} {role} at {self.height}"

    @property
    def height(self) -> int:
        return len(self._disk)

    @property
    def kept(self) -> list[bytes]:
        """What is on its disk."""
        return self._disk

    @property
    def is_onboarding(self) -> bool:
        return self._follower is not None and self._follower.is_onboarding

    @property
    def is_pending(self) -> bool:
        return bool(self._consenter and self._consenter.pending_count)

    def consumed(self, end_offset: int) -> bool:
        """Or it does not consume at all."""
        return self._consenter is None or self._consenter.next_offset >= end_offset

    # As a peer

    def tell_height(self) -> int | None:
        return self.height if self._is_up else None

    def give(self, asker: str, start: int, stop: int) -> list[GIVEN] | None:
        return self.given(start, stop) if self._is_up else None

    def given(self, start: int, stop: int) -> list[GIVEN]:
        """Signed as they are given, by whoever gives them."""
        return [self._signed(each) for each in self._disk[start:stop]]

    # Life

    def start(self) -> None:
        if self._is_up:
            return
        self._is_up = True
        self._life += 1
        self._take_role()

    revive = start

    def kill(self) -> None:
        if self._is_up:
            self._world.tell(f"{self} and is killed")
        self._is_up = False
        self._life += 1
        self._consenter = self._follower = None

    def _take_role(self) -> None:
        """By the newest configuration on the disk; a new node has the genesis from the stream."""
        verifier = ChainVerifier()
        for encoded in self._disk:
            verifier.take(encoded)
        tip, config = verifier.tip, verifier.config
        if tip is None:
            genesis = ChainVerifier()
            genesis.take(encode_block(self._world.genesis))
            config = genesis.config
            if config is not None and config.is_consenter(self.name):
                self._disk.append(encode_block(self._world.genesis))
                tip = ChainTip.of(self._world.genesis)
        joined = self._join is None or self.height > self._join.number
        if joined and tip is not None and config is not None and config.is_consenter(self.name):
            self._consent(tip, config)
        else:
            self._follow(tip, config if tip else None)

    def _signed(self, encoded: bytes) -> GIVEN:
        signature = self._signatures.get(encoded)
        if signature is None:
            signer = self._world.signers[self.name]
            signature = self._signatures[encoded] = signer.sign_block(decode_block(encoded).hash)
        return encoded, signature

    def _later(self, delay_ms: float, call: object, *arguments: object) -> None:
        """Unless it has died by then."""
        life = self._life

        def run() -> None:
            if self._is_up and self._life == life:
                call(*arguments)  # type: ignore[operator]

        self._world.after_ms(delay_ms, run)

    def _dies(self) -> bool:
        if self._world.is_calm or self._world.rng.random() >= DIES_AMID_EFFECTS:
            return False
        self.kill()
        self._world.after_ms(self._world.rng.uniform(0, 5_000), self.revive)
        return True

    # As a consenter

    def _consent(self, tip: ChainTip, config: ChannelConfig) -> None:
        self._world.tell(f"{self.name} cuts from {tip.height} on")
        self._follower = None
        self._consenter = Consenter(tip, config)
        self._timer += 1
        self._later(self._world.delay_ms(), self._consume)

    def _consume(self) -> None:
        consenter = self._consenter
        if consenter is None:
            return
        stream = self._world.stream
        first = bisect_left(stream, consenter.next_offset, key=lambda record: record.offset)
        if first < len(stream):
            count = self._world.rng.randint(1, READ_MAX)
            records = stream[first : first + count]
            self._carry_out(consenter.step(cutting.RecordsConsumed(records)))
        if self._consenter is consenter:
            idle_ms = 0 if first < len(stream) else self._world.rng.uniform(0, 300)
            self._later(idle_ms + self._world.delay_ms(), self._consume)

    def _carry_out(self, effects: list[cutting.Effect]) -> None:
        for effect in effects:
            if self._dies():
                return
            if self._consenter is None:
                break  # what comes after its removal is not for it to cut
            match effect:
                case cutting.AppendBlock(block):
                    assert block.number == self.height
                    self._disk.append(encode_block(block))
                    self._check()
                case cutting.StartTimer(number, after_ms):
                    self._timer += 1
                    self._later(after_ms * self._pace, self._expire, number, self._timer)
                case cutting.StopTimer():
                    self._timer += 1
                case cutting.PostTimeToCut(number):
                    self._world.post(time_to_cut(number, self.name))
                case cutting.ConfigurationChanged(config) if not config.is_consenter(self.name):
                    self._world.tell(f"{self.name} is removed by {config.sequence}")
                    self._consenter = None
                case _:
                    pass
        if self._consenter is None and self._is_up:
            self._take_role()

    def _expire(self, number: int, timer: int) -> None:
        if timer == self._timer and self._consenter is not None:
            self._carry_out(self._consenter.step(cutting.TimerExpired(number)))

    # As a follower

    def _follow(self, tip: ChainTip | None, config: ChannelConfig | None) -> None:
        world = self._world
        if self.height == 0 and self._join is None:
            self._join = world.join_block()
        join = self._join
        world.tell(f"{self.name} follows from {self.height} on, join {join and join.number}")
        self._consenter = None
        self._follower = ChannelFollower(
            self.name,
            world.channel,
            tip=tip,
            configuration=config,
            peers=world.peers,
            join=join,
            limits=FollowerLimits(avoid_ms_max=60_000),
        )
        self._do(self._follower.start(world.now_ms))

    def _tell(self, event: following.Event) -> None:
        if self._follower is not None:
            self._do(self._follower.step(event, self._world.now_ms))

    def _do(self, effects: list[following.Effect]) -> None:
        follower = self._follower
        for effect in effects:
            if self._dies():
                return
            match effect:
                case following.AskHeight(peer):
                    self._ask(peer)
                case following.PullBlocks():
                    self._pull = effect.pull
                    self._later(self._world.delay_ms(), self._begin_pull, effect)
                case following.EndPull():
                    self._pull = 0
                case following.AppendPulled(block):
                    assert block.number == self.height
                    self._disk.append(encode_block(block))
                    self._check()
                case following.Discard(height):
                    self._world.tell(f"{self.name} discards all from {height} on")
                    del self._disk[height:]
                    self._checked = min(self._checked, height)
                case following.Refuse(peer, reason, number):
                    self._world.tell(f"{self.name} refuses {peer} at {number}: {reason}")
                case following.Diverged():
                    self._world.on_diverged(self.name, effect)
                case following.Promote():
                    self._follower = None
                    self._take_role()
                    return
        if follower is self._follower and follower is not None:
            self._set_alarm(follower)

    def _set_alarm(self, follower: ChannelFollower) -> None:
        deadline_ms = follower.deadline_ms
        if deadline_ms is not None:
            wait_ms = max(0, deadline_ms - self._world.now_ms)
            self._later(wait_ms + 1, self._wake, follower, deadline_ms)

    def _wake(self, follower: ChannelFollower, deadline_ms: int) -> None:
        if follower is self._follower and follower.deadline_ms == deadline_ms:
            self._tell(following.DeadlineReached())

    def _ask(self, peer: str) -> None:
        world = self._world

        def answer() -> None:
            height = world.answering(peer).tell_height()
            if height is None:
                self._tell(following.PeerFailed(peer))
            else:
                self._tell(following.HeightTold(peer, height))

        if not world.is_lost():
            self._later(2 * world.delay_ms(), answer)

    def _begin_pull(self, pull: following.PullBlocks) -> None:
        given = self._world.answering(pull.peer).give(self.name, pull.start, pull.stop)
        if given is None:
            self._tell(following.PeerFailed(pull.peer))
            return
        self._next_of(pull, given, 0)

    def _next_of(self, pull: following.PullBlocks, given: list[GIVEN], position: int) -> None:
        """One after the other; when one is lost the connection is."""
        if pull.pull != self._pull or (self._world.rng.random() < 0.1 and self._world.is_lost()):
            return
        if position == len(given):
            self._tell(following.PullEnded(pull.pull))
            return
        encoded, signature = given[position]
        try:
            self._tell(following.BlockPulled(pull.pull, decode_block(encoded), signature))
        except CorruptBlock as error:
            self._tell(following.CorruptPulled(pull.pull, str(error)))
        self._later(self._world.rng.uniform(0.01, 1), self._next_of, pull, given, position + 1)

    def _check(self) -> None:
        """What was onboarded is for good when the join block is reached."""
        if self.is_onboarding:
            return
        for number in range(self._checked, self.height):
            encoded = self._disk[number]
            self._world.check(self.name, number, encoded)
        self._checked = self.height
