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
block is another; so the history below is vouched for by whoever gave the operator the block.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple

from streamlog.ledger.core.backoff import Backoff
from streamlog.ledger.core.block import Block
from streamlog.ledger.core.chain import ChainTip
from streamlog.ledger.core.channel_config import ChannelConfig
from streamlog.ledger.core.encoding import encode_block
from streamlog.ledger.core.follower_events import (
    AppendPulled,
    AskHeight,
    BlockPulled,
    CorruptPulled,
    DeadlineReached,
    Discard,
    Diverged,
    Effect,
    EndPull,
    Event,
    FollowerRefusal,
    HaltFollower,
    HeightTold,
    PeerFailed,
    Promote,
    PullBlocks,
    PullEnded,
    PullEvent,
    Refuse,
)
from streamlog.ledger.core.peer_table import PeerBounds, PeerTable
from streamlog.ledger.core.pulled_block import (
    UNSIGNED,
    PulledBlockRefused,
    TooNew,
    check_signature,
    keyring_of,
    take_next,
)
from streamlog.ledger.core.signing import BlockSignature
from streamlog.ledger.core.verifier import ChainVerifier

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
    """A block that somebody vouches for whom the operator trusts."""

    number: int
    hash: bytes
    """Of its header."""


class _State(Enum):
    WAITING = auto()
    ASKING = auto()
    PULLING = auto()
    ENDED = auto()


class Follower:
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
        was pulled from peers that nobody bears out is discarded. Otherwise an operator has to look.
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
