"""A follower of a channel gets its blocks from consenters, and believes none of them. Pure.

It does one of four things, with a deadline for each but the last:

=========  ======================================================================================
waiting    until it is time to ask again (``Backoff``)
asking     some peers for their heights; all answer, or the deadline comes
pulling    blocks from the peer with the most of them, each checked as it comes
ended      nothing more: the newest configuration names this node a consenter, or cannot be read
=========  ======================================================================================

A peer that breaks its word (a block with a wrong hash, a gap, another channel's, or nothing where
a height was claimed) is refused and avoided, and another is asked at once. A node that joins by a
block (``join``) first has each peer show its block of that number, and takes nothing from one whose
block is another; so the history below is vouched for by the source of that block.

``ChannelFollower.step(event, now_ms)`` returns effects, which the shell carries out **in order**. Each
pull has a number of its own, so that blocks of an abandoned pull are not taken for the next one's.
``Backoff`` is the wait between two polls. ``PeerTable`` holds which peers are avoided, and until when.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import Final, NamedTuple
from zlib import crc32

from streamlog.errors import BrokenChain, ConfigError, CorruptBlock
from streamlog.ledger.core.block import NO_HASH, Block
from streamlog.ledger.core.chain import ChainTip
from streamlog.ledger.core.channel_config import ChannelConfig
from streamlog.ledger.core.encoding import decode_records, encode_block
from streamlog.ledger.core.entry import LaterConfiguration, marked
from streamlog.ledger.core.signing import BlockSignature, Keyring
from streamlog.ledger.core.verifier import ChainVerifier


class FollowerRefusal(StrEnum):
    """Why a block or a peer was refused; also the values of a metric's label."""

    NUMBER = "number"  # a gap, or one again
    PREVIOUS_HASH = "previous-hash"
    CORRUPT = "corrupt"  # its data are not those of its header, or it is no block at all
    CHANNEL = "channel"  # another one's
    MALFORMED = "malformed"  # hashes are right, and it is no block that a node cuts
    SIGNATURE = "signature"  # none, or not by a consenter
    JOIN_BLOCK = "join-block"  # not the one that this node was told to join at
    UNKEPT = "unkept"  # a height was claimed, and nothing came
    UNREACHABLE = "unreachable"


# Events


@dataclass(frozen=True, slots=True)
class DeadlineReached:
    """``ChannelFollower.deadline_ms`` has come."""


@dataclass(frozen=True, slots=True)
class HeightTold:
    """A peer says how many blocks it has."""

    peer: str
    height: int


@dataclass(frozen=True, slots=True)
class BlockPulled:
    """The next one of a pull: a whole block, its data those of its header."""

    pull: int
    block: Block
    signature: BlockSignature | None = None


@dataclass(frozen=True, slots=True)
class CorruptPulled:
    """What came in a pull is no whole block."""

    pull: int
    detail: str


@dataclass(frozen=True, slots=True)
class PullEnded:
    """The peer says that this is all."""

    pull: int


@dataclass(frozen=True, slots=True)
class PeerFailed:
    """It cannot be reached, or refused to answer."""

    peer: str
    detail: str = ""


PullEvent = BlockPulled | CorruptPulled | PullEnded
Event = DeadlineReached | HeightTold | PeerFailed | PullEvent


# Effects


@dataclass(frozen=True, slots=True)
class AskHeight:
    """Ask the peer how many blocks it has; ``HeightTold`` or ``PeerFailed`` is the answer."""

    peer: str


@dataclass(frozen=True, slots=True)
class PullBlocks:
    """Ask the peer for its blocks in ``[start, stop)``. Whatever pull there was is over."""

    pull: int
    peer: str
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class EndPull:
    """Take no more of it."""

    pull: int


@dataclass(frozen=True, slots=True)
class AppendPulled:
    """It is the next block, and checked: write it. ``peer`` is where it came from."""

    block: Block
    peer: str


@dataclass(frozen=True, slots=True)
class Discard:
    """Remove the blocks from ``height`` on: what was onboarded does not lead to the join block."""

    height: int


@dataclass(frozen=True, slots=True)
class Refuse:
    """A peer is avoided for so long; told for logs and metrics."""

    peer: str
    reason: FollowerRefusal
    number: int
    """Of the block that was to come."""
    avoided_ms: int
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Diverged:
    """Every peer that was asked has another history than this node has at ``number``.

    Told once for each height. An operator has to look: either this ledger is wrong or all theirs.
    """

    number: int
    reason: FollowerRefusal


@dataclass(frozen=True, slots=True)
class HaltFollower:
    """Block ``number`` has a configuration in a later format: this node cannot judge what follows.
    The last effect of all.
    """

    number: int
    format: int


@dataclass(frozen=True, slots=True)
class Promote:
    """The newest configuration names this node: it is a consenter from ``height`` on. The last
    effect of all.
    """

    height: int


Effect = (
    AskHeight
    | PullBlocks
    | EndPull
    | AppendPulled
    | Discard
    | Refuse
    | Diverged
    | HaltFollower
    | Promote
)


FACTOR: Final = 1.5
"""As Hyperledger Fabric's follower chains have it."""


class Backoff:
    """A wait between two bounds. It shrinks as it grows, step by step, and so settles near the time
    that really passes from one success to the next, instead of starting from the least each time.
    """

    def __init__(self, ms_min: int, ms_max: int) -> None:
        if not 0 < ms_min <= ms_max:
            problem = f"{ms_min} ms to {ms_max} ms is no range"
            raise ConfigError("poll", problem, "the least is above 0, the longest not below it")
        self._min = ms_min
        self._max = ms_max
        self._ms = float(ms_min)

    @property
    def ms(self) -> int:
        """The wait as it is now."""
        return int(self._ms)

    def grow(self) -> None:
        """Nothing came."""
        self._ms = min(self._ms * FACTOR, self._max)

    def shrink(self) -> None:
        """Something came."""
        self._ms = max(self._ms / FACTOR, self._min)


ASKED_MAX: Final = 5
"""So many are asked for their height at a time, in turn; with more, hundreds of followers would
keep the consenters busy with questions."""

TIMES_MAX: Final = 64
"""Any bound on a wait is reached after so many."""


class PeerBounds(NamedTuple):
    """Of a wait that grows by 1.5 each time, in ms."""

    ms_min: int
    ms_max: int

    def after(self, times: int) -> int:
        """The wait after so many before it."""
        return int(min(self.ms_min * FACTOR ** min(times, TIMES_MAX), self.ms_max))


@dataclass(slots=True)
class _Peer:
    lapses: int = 0  # times in a row that it could not be reached
    lies: int = 0  # times in a row that it broke its word
    avoided_until_ms: int = 0


class PeerTable:
    """Avoidance has an end, since a peer may be repaired; it is longer each time, up to a bound."""

    def __init__(self, own: str, *, lapse: PeerBounds, lie: PeerBounds) -> None:
        self._own = own
        self._lapse = lapse
        self._lie = lie
        self._peers: dict[str, _Peer] = {}
        self._turn = crc32(own.encode())  # so that not all followers begin with the same one

    @property
    def names(self) -> Collection[str]:
        """All of them, avoided or not."""
        return self._peers.keys()

    def replace(self, names: Iterable[str]) -> None:
        """These are the peers now; what is known of those who stay is kept."""
        wanted = sorted(set(names) - {self._own})
        self._peers = {name: self._peers.get(name, _Peer()) for name in wanted}

    def lapsed(self, name: str, now_ms: int) -> int:
        """It could not be reached; returns for how many ms it is avoided."""
        peer = self._peers.get(name, _Peer())
        avoided_ms = self._lapse.after(peer.lapses)
        peer.lapses += 1
        peer.avoided_until_ms = max(peer.avoided_until_ms, now_ms + avoided_ms)
        return avoided_ms

    def lied(self, name: str, now_ms: int) -> int:
        """It broke its word; returns for how many ms it is avoided."""
        peer = self._peers.get(name, _Peer())
        avoided_ms = self._lie.after(peer.lies)
        peer.lies += 1
        peer.avoided_until_ms = max(peer.avoided_until_ms, now_ms + avoided_ms)
        return avoided_ms

    def pardon(self, name: str) -> None:
        """It may be asked again at once."""
        peer = self._peers.get(name, _Peer())
        peer.lies = peer.avoided_until_ms = 0

    def answered(self, name: str) -> None:
        """It could be reached."""
        self._peers.get(name, _Peer()).lapses = 0

    def kept_word(self, name: str) -> None:
        """It gave what it promised."""
        self._peers.get(name, _Peer()).lies = 0

    def usable(self, now_ms: int) -> list[str]:
        """Who may be asked now, beginning with another one each time; at most ``ASKED_MAX``."""
        names = [n for n, peer in self._peers.items() if peer.avoided_until_ms <= now_ms]
        if not names:
            return []
        self._turn += 1
        first = self._turn % len(names)
        return (names[first:] + names[:first])[:ASKED_MAX]

    def usable_at_ms(self) -> int | None:
        """When the first of them may be asked; None where there are none at all."""
        return min((peer.avoided_until_ms for peer in self._peers.values()), default=None)


UNSIGNED: Final = Keyring(())


class PulledBlockRefused(Exception):
    """A block is not what it should be."""

    def __init__(self, reason: FollowerRefusal, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class TooNew:
    """The next block is a configuration in a later format than is known here."""

    number: int
    format: int


def check_signature(keyring: Keyring, block: Block, signature: BlockSignature | None) -> None:
    """That a key on the ring vouches for it; an empty ring asks for none. Raises Refused."""
    if len(keyring) and not (signature and keyring.is_block_signed(signature, block.hash)):
        problem = f"block {block.number} has no signature of a consenter"
        raise PulledBlockRefused(FollowerRefusal.SIGNATURE, problem)


def take_next(verifier: ChainVerifier, channel: str, block: Block) -> TooNew | None:
    """Have ``verifier`` take the block after those before. Raises Refused."""
    misplaced = _misplaced(verifier, channel, block)
    if misplaced is None:
        later = _later_format(block)
        if later is not None:
            return TooNew(block.number, later)
    try:
        verifier.take_block(block)
    except (BrokenChain, CorruptBlock) as error:
        raise PulledBlockRefused(misplaced or FollowerRefusal.MALFORMED, str(error)) from None
    return None


def keyring_of(config: ChannelConfig | None) -> Keyring:
    """The consenters' keys, where all of them have one; else blocks need not be signed."""
    if config is None:
        return UNSIGNED
    vouchers = config.vouchers
    return Keyring(vouchers) if len(vouchers) == len(config.consenters) else UNSIGNED


def _misplaced(verifier: ChainVerifier, channel: str, block: Block) -> FollowerRefusal | None:
    """What the verifier will not have it for, as far as its place goes."""
    header, tip = block.header, verifier.tip
    if header.channel != channel:
        return FollowerRefusal.CHANNEL
    if header.number != (tip.height if tip else 0):
        return FollowerRefusal.NUMBER
    if header.previous_hash != (tip.hash if tip else NO_HASH):
        return FollowerRefusal.PREVIOUS_HASH
    return None


def _later_format(block: Block) -> int | None:
    if not block.is_configuration or block.header.record_count != 1:
        return None
    try:
        entry = marked(next(decode_records(block.data)))
    except (CorruptBlock, StopIteration):
        return None
    return entry.format if isinstance(entry, LaterConfiguration) else None


PULL_BLOCKS_MAX: Final = 10_000
"""A pull ends after so many, and heights are asked for again: a slow peer is not held on to."""


@dataclass(frozen=True)
class FollowerLimits:
    """Waits of a follower, in ms."""

    poll_ms_min: int = 100
    poll_ms_max: int = 5_000
    """Between two questions for heights; grows by 1.5 while there is nothing new."""
    answer_ms: int = 2_000
    """A peer that has not told its height by then cannot be reached."""
    stall_ms: int = 5_000
    """A pull in which nothing comes for so long is given up."""
    avoid_ms_min: int = 30_000
    avoid_ms_max: int = 600_000
    """A peer that broke its word is not asked for so long; one that cannot be reached, only for as
    long as a poll may wait."""


class JoinPoint(NamedTuple):
    """A block from a source that the operator trusts."""

    number: int
    hash: bytes
    """Of its header."""


class _State(Enum):
    WAITING = auto()
    ASKING = auto()
    PULLING = auto()
    ENDED = auto()


class ChannelFollower:
    """``start`` it, then ``step`` it with each event and at each deadline.

    What they return is to be carried out in order.
    """

    def __init__(
        self,
        name: str,
        channel: str,
        *,
        tip: ChainTip | None,
        configuration: ChannelConfig | None,
        genesis: Block | None = None,
        peers: Iterable[str] = (),
        join: JoinPoint | None = None,
        limits: FollowerLimits | None = None,
    ) -> None:
        self.name = name
        self.channel = channel
        self._verifier = ChainVerifier(tip, configuration, channel=channel)
        self._genesis = genesis  # where onboarding may begin, from a source that is trusted
        self._keyring = UNSIGNED  # of those one of whom has to vouch for each block
        self.height_told = self.height
        """The most blocks that a peer claims to have, at the last count."""
        self.deadline_ms: int | None = None
        """When to step with a ``DeadlineReached``; None where only an event can help."""
        self._limits = limits or FollowerLimits()
        self._given = tuple(peers)
        self._join = join if join and join.number >= self.height else None
        poll = PeerBounds(self._limits.poll_ms_min, self._limits.poll_ms_max)
        avoid = PeerBounds(self._limits.avoid_ms_min, self._limits.avoid_ms_max)
        self._peers = PeerTable(name, lapse=poll, lie=avoid)
        self._backoff = Backoff(*poll)
        self._state = _State.WAITING
        self._asked: list[str] = []  # in the order in which they are preferred
        self._heights: dict[str, int] = {}  # what they have told
        self._pull = PullBlocks(0, "", 0, 0)  # the current one, or the last
        self._pulled = 0  # blocks that it has given
        self._vouched: set[str] = set()  # peers that have shown the join block
        self._sources: set[str] = set()  # peers that blocks came from while onboarding
        self._contrary: set[str] = set()  # peers whose history is another at ``height``
        self._diverged_at = -1
        self._meet_peers()

    @property
    def height(self) -> int:
        """So many blocks are here; the next one's number."""
        tip = self._verifier.tip
        return tip.height if tip else 0

    @property
    def configuration(self) -> ChannelConfig | None:
        """In force after the last block; None before the first one."""
        return self._verifier.config

    @property
    def lag(self) -> int:
        """Blocks that are known to be and are not here yet."""
        return max(0, self.height_told - self.height)

    @property
    def poll_ms(self) -> int:
        """How long it waits between two questions just now."""
        return self._backoff.ms

    @property
    def is_onboarding(self) -> bool:
        """The join block is not reached yet."""
        return self._join is not None

    def start(self, now_ms: int) -> list[Effect]:
        """To be called once, before ``step``."""
        return self._promote_or(lambda: self._ask(now_ms))

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        """What to do about it. Events of pulls and questions that are over are passed by."""
        match event:
            case DeadlineReached():
                return self._on_deadline(now_ms)
            case HeightTold(peer, height):
                return self._on_height(peer, height, now_ms)
            case PeerFailed():
                return self._on_failure(event, now_ms)
            case BlockPulled() | CorruptPulled() | PullEnded():
                is_current = self._state is _State.PULLING and event.pull == self._pull.pull
                return self._on_pulled(event, now_ms) if is_current else []

    def _on_pulled(self, event: PullEvent, now_ms: int) -> list[Effect]:
        match event:
            case BlockPulled():
                return self._on_block(event, now_ms)
            case CorruptPulled(detail=detail):
                return self._refuse(FollowerRefusal.CORRUPT, now_ms, detail)
            case PullEnded():
                # Fewer than it claimed to have is no lie if some came: it may have cut back.
                return (
                    self._rest(now_ms)
                    if self._pulled
                    else self._refuse(FollowerRefusal.UNKEPT, now_ms)
                )

    def _on_deadline(self, now_ms: int) -> list[Effect]:
        if self.deadline_ms is None or now_ms < self.deadline_ms:
            return []
        match self._state:
            case _State.WAITING:
                return self._ask(now_ms)
            case _State.ASKING:
                return self._choose(now_ms)
            case _State.PULLING:
                return self._refuse(FollowerRefusal.UNKEPT, now_ms)
        return []

    # Asking

    def _ask(self, now_ms: int) -> list[Effect]:
        self._heights = {}
        self._asked = self._peers.usable(now_ms)
        if not self._asked:
            self._wait(self._peers.usable_at_ms())
            return self._promote_or(list)
        self._enter(_State.ASKING, now_ms + self._limits.answer_ms)
        return [AskHeight(peer) for peer in self._asked]

    def _on_height(self, peer: str, height: int, now_ms: int) -> list[Effect]:
        if self._state is not _State.ASKING or peer not in self._asked:
            return []
        self._heights[peer] = height
        self._peers.answered(peer)
        return self._choose(now_ms) if len(self._heights) == len(self._asked) else []

    def _on_failure(self, event: PeerFailed, now_ms: int) -> list[Effect]:
        peer = event.peer
        if self._state is _State.PULLING and peer == self._pull.peer:
            return self._refuse(FollowerRefusal.UNREACHABLE, now_ms, event.detail)
        if self._state is not _State.ASKING or peer not in self._asked or peer in self._heights:
            return []
        self._asked.remove(peer)
        effects = [self._avoid(peer, FollowerRefusal.UNREACHABLE, now_ms, event.detail)]
        if len(self._heights) == len(self._asked):
            effects += self._choose(now_ms)
        return effects

    def _choose(self, now_ms: int) -> list[Effect]:
        """All have answered, or had the time to: pull from who has most, or wait."""
        silent = [peer for peer in self._asked if peer not in self._heights]
        effects = [self._avoid(peer, FollowerRefusal.UNREACHABLE, now_ms) for peer in silent]
        self.height_told = max(self._heights.values(), default=self.height_told)
        wanted = self._join.number if self._join else self.height
        best = max((height for height in self._heights.values()), default=0)
        if best <= wanted:
            self._backoff.grow()
            self._wait(now_ms + self._backoff.ms)
            return effects + self._promote_or(list)
        peer = next(peer for peer in self._asked if self._heights.get(peer) == best)
        return [*effects, self._begin_pull(peer, now_ms)]

    # Pulling

    def _begin_pull(self, peer: str, now_ms: int) -> Effect:
        start, stop = self.height, self._heights[peer]
        if self._join and peer not in self._vouched:
            start = self._join.number  # show that first
        if self._join:
            stop = self._join.number + 1
        stop = min(stop, start + PULL_BLOCKS_MAX)
        self._pull = PullBlocks(self._pull.pull + 1, peer, start, stop)
        self._pulled = 0
        self._enter(_State.PULLING, now_ms + self._limits.stall_ms)
        return self._pull

    def _on_block(self, event: BlockPulled, now_ms: int) -> list[Effect]:
        peer, block = self._pull.peer, event.block
        try:
            if self._join and peer not in self._vouched:
                self._check_join_block(block)
                self._vouched.add(peer)
                return [self._begin_pull(peer, now_ms)]
            too_new = self._take(block, event.signature)
        except PulledBlockRefused as refused:
            return self._refuse(refused.reason, now_ms, str(refused))
        if too_new is not None:
            self._enter(_State.ENDED, None)
            return [EndPull(self._pull.pull), HaltFollower(too_new.number, too_new.format)]
        self._advance(block)
        self.deadline_ms = now_ms + self._limits.stall_ms
        effects: list[Effect] = [AppendPulled(block, peer)]
        if self.height == self._pull.stop or not self._may_vouch(peer):
            effects += self._rest(now_ms)
        return effects

    def _take(self, block: Block, signature: BlockSignature | None) -> TooNew | None:
        """Raises Refused. The join block's hash vouches for all below it: no signature has to."""
        if self._join and self.height == self._join.number:
            self._check_join_block(block)
        check_signature(self._keyring, block, signature)
        return take_next(self._verifier, self.channel, block)

    def _may_vouch(self, peer: str) -> bool:
        """A configuration may have come by which others have to sign."""
        return not len(self._keyring) or peer in self._keyring

    def _check_join_block(self, block: Block) -> None:
        if self._join and block.hash != self._join.hash:
            problem = f"block {block.number} is not the one to join at"
            raise PulledBlockRefused(FollowerRefusal.JOIN_BLOCK, problem)

    def _advance(self, block: Block) -> None:
        self._pulled += 1
        self.height_told = max(self.height_told, self.height)
        self._contrary.clear()
        if self._join:
            self._sources.add(self._pull.peer)
            if self.height > self._join.number:
                self._join = None
                self._meet_peers()
        if block.is_configuration:
            self._meet_peers()

    def _rest(self, now_ms: int) -> list[Effect]:
        """A pull has brought what there was to bring."""
        self._peers.kept_word(self._pull.peer)
        self._backoff.shrink()
        ended: list[Effect] = [EndPull(self._pull.pull)]
        if self.lag:
            return ended + self._ask(now_ms)
        self._wait(now_ms + self._backoff.ms)
        return ended + self._promote_or(list)

    # Refusing

    def _refuse(self, reason: FollowerRefusal, now_ms: int, detail: str = "") -> list[Effect]:
        """The peer of the current pull; ask the others."""
        peer = self._pull.peer
        effects = [EndPull(self._pull.pull), self._avoid(peer, reason, now_ms, detail)]
        if reason in (FollowerRefusal.PREVIOUS_HASH, FollowerRefusal.JOIN_BLOCK):
            effects += self._on_contrary(peer, reason, now_ms)
        return effects + self._promote_or(lambda: self._ask(now_ms))

    def _on_contrary(self, peer: str, reason: FollowerRefusal, now_ms: int) -> list[Effect]:
        """It has another history. When all have, it may be ours that is wrong.

        Whose word counts is known while onboarding: the history has to lead to the join block. What
        was pulled from peers that no other peer confirms is discarded. Otherwise an operator has to look.
        """
        self._contrary.add(peer)
        if self._join and reason is FollowerRefusal.PREVIOUS_HASH:
            others = self._vouched - self._sources
            is_ours_wrong = self._sources == {peer} or self._contrary >= others
            if is_ours_wrong and self.height > self._root_height:
                return self._start_over(now_ms)
        number = self.height
        if self._diverged_at == number or not self._contrary >= set(self._peers.names):
            return []
        self._diverged_at = number
        return [Diverged(number, reason)]

    @property
    def _root_height(self) -> int:
        return 1 if self._genesis else 0

    def _start_over(self, now_ms: int) -> list[Effect]:
        sources = sorted(self._sources - {self._pull.peer})
        refused = [self._avoid(peer, FollowerRefusal.JOIN_BLOCK, now_ms) for peer in sources]
        for peer in self._contrary - self._sources:
            self._peers.pardon(peer)  # it may well have been right
        self._verifier = ChainVerifier(channel=self.channel)
        if self._genesis:
            self._verifier.take(encode_block(self._genesis))
        for peers in (self._vouched, self._sources, self._contrary):
            peers.clear()
        self._meet_peers()
        return [*refused, Discard(self.height)]

    def _avoid(self, peer: str, reason: FollowerRefusal, now_ms: int, detail: str = "") -> Effect:
        broken = reason is not FollowerRefusal.UNREACHABLE
        avoided_ms = (self._peers.lied if broken else self._peers.lapsed)(peer, now_ms)
        return Refuse(peer, reason, self.height, avoided_ms, detail)

    # All

    def _meet_peers(self) -> None:
        """The consenters of the newest configuration, and whom the operator has named.

        Where a consenter has to sign, others need not be asked.
        """
        consenters = self.configuration.consenters if self.configuration else ()
        names = [node.name for node in consenters]
        self._keyring = UNSIGNED if self._join else keyring_of(self.configuration)
        self._peers.replace(names if len(self._keyring) else (*self._given, *names))

    def _promote_or(self, otherwise: Callable[[], list[Effect]]) -> list[Effect]:
        """A consenter by the newest configuration? Asked only between pulls, so that a node that
        was one for a while, long ago, does not cut again what it can pull.
        """
        configuration = self.configuration
        if self._join or configuration is None or not configuration.is_consenter(self.name):
            return otherwise()
        self._enter(_State.ENDED, None)
        return [Promote(self.height)]

    def _wait(self, deadline_ms: int | None) -> None:
        self._enter(_State.WAITING, deadline_ms)

    def _enter(self, state: _State, deadline_ms: int | None) -> None:
        self._state = state
        self.deadline_ms = deadline_ms
