"""A follower, event by event."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from streamlog.errors import CorruptBlock
from streamlog.ledger.core.block import Block
from streamlog.ledger.core.channel_config import ChannelConfig
from streamlog.ledger.core.channel_follower import (
    PULL_BLOCKS_MAX,
    AppendPulled,
    AskHeight,
    BlockPulled,
    ChannelFollower,
    CorruptPulled,
    DeadlineReached,
    Discard,
    Diverged,
    Effect,
    EndPull,
    FollowerLimits,
    FollowerRefusal,
    HaltFollower,
    HeightTold,
    JoinPoint,
    PeerFailed,
    Promote,
    PullBlocks,
    PullEnded,
    Refuse,
)
from streamlog.ledger.core.encoding import decode_block, encode_block
from streamlog.ledger.core.signing import Signer
from tests.unit.ledger.ledger_chain import CHANNEL, HandMadeChain, config_of

LIMITS = FollowerLimits()


def pulled(pull: int, encoded: bytes) -> BlockPulled | CorruptPulled:
    """As the shell tells of what came."""
    try:
        return BlockPulled(pull, decode_block(encoded))
    except CorruptBlock as error:
        return CorruptPulled(pull, str(error))


class Told:
    """A follower, the time, and what it has wanted so far."""

    def __init__(
        self,
        chain: HandMadeChain,
        *,
        height: int = 1,
        name: str = "me",
        join: Block | None = None,
        peers: Iterable[str] = (),
    ) -> None:
        self.chain = chain
        self.now_ms = 0
        self.appended: list[int] = []
        self.refused: list[tuple[str, FollowerRefusal]] = []
        self.other: list[Effect] = []
        self.asked: list[str] = []
        self.pull = PullBlocks(0, "", 0, 0)
        blocks = chain.blocks[:height]
        config = config_of("a", "b", "c") if blocks else None
        tip = HandMadeChain.tip_of(blocks)
        self.follower = ChannelFollower(
            name,
            CHANNEL,
            tip=tip,
            configuration=config,
            join=JoinPoint(join.number, join.hash) if join else None,
            peers=peers,
            limits=LIMITS,
        )
        self.note(self.follower.start(0))

    def note(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case AskHeight(peer):
                    self.asked.append(peer)
                case PullBlocks():
                    self.pull = effect
                case AppendPulled(block):
                    self.appended.append(block.number)
                case Refuse(peer, reason):
                    self.refused.append((peer, reason))
                case EndPull():
                    pass
                case _:
                    self.other.append(effect)

    def step(self, event: object) -> None:
        self.note(self.follower.step(event, self.now_ms))  # type: ignore[arg-type]

    def wait(self) -> int:
        """Until the deadline; how long that took."""
        assert self.follower.deadline_ms is not None
        waited = self.follower.deadline_ms - self.now_ms
        self.now_ms = self.follower.deadline_ms
        self.asked = []
        self.step(DeadlineReached())
        return waited

    def heights(self, **heights: int) -> None:
        for peer, height in heights.items():
            self.step(HeightTold(peer, height))

    def give(self, *blocks: Block) -> None:
        for block in blocks:
            self.step(pulled(self.pull.pull, encode_block(block)))


@pytest.fixture
def chain() -> HandMadeChain:
    made = HandMadeChain(config_of("a", "b", "c"))
    made.grow(9)
    return made


def test_it_pulls_what_it_lacks_from_who_has_most(chain: HandMadeChain) -> None:
    told = Told(chain)
    assert sorted(told.asked) == ["a", "b", "c"]
    told.heights(a=3, b=10, c=9)
    assert (told.pull.peer, told.pull.start, told.pull.stop) == ("b", 1, 10)
    assert told.follower.lag == 9
    told.give(*chain.blocks[1:])
    assert told.appended == list(range(1, 10))
    assert told.follower.lag == 0
    assert told.refused == told.other == []


def test_the_wait_grows_by_half_up_to_a_bound_and_shrinks_on_success(chain: HandMadeChain) -> None:
    told = Told(chain, height=10)
    waits = []
    for _ in range(14):
        told.heights(a=10, b=10, c=10)
        waits.append(told.wait())
    assert waits[:4] == [150, 225, 337, 506]
    assert waits[-1] == LIMITS.poll_ms_max == told.follower.poll_ms
    chain.grow(1)
    told.heights(a=11, b=10, c=10)
    told.give(chain.blocks[10])
    assert told.wait() == int(LIMITS.poll_ms_max / 1.5)


def test_all_it_is_behind_is_pulled_without_waiting() -> None:
    made = HandMadeChain(config_of("a", "b", "c"))
    told = Told(made)
    told.heights(a=2 * PULL_BLOCKS_MAX + 5, b=1, c=1)
    assert told.pull.stop - told.pull.start == PULL_BLOCKS_MAX
    made.grow(PULL_BLOCKS_MAX)
    told.give(*made.blocks[1:])
    assert told.follower.deadline_ms == told.now_ms + LIMITS.answer_ms, "it asks again at once"


def forged_hash(block: Block) -> Block:
    return replace(block, header=replace(block.header, data_hash=bytes(32)))


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (lambda chain: forged_hash(chain.blocks[2]), FollowerRefusal.CORRUPT),
        (
            lambda chain: replace(chain.blocks[2], data=chain.blocks[3].data),
            FollowerRefusal.CORRUPT,
        ),
        (lambda chain: chain.blocks[3], FollowerRefusal.NUMBER),
        (lambda chain: chain.blocks[1], FollowerRefusal.NUMBER),
        (lambda chain: chain.twin("other").blocks[2], FollowerRefusal.PREVIOUS_HASH),
        (lambda chain: chain.elsewhere("elsewhere").blocks[2], FollowerRefusal.CHANNEL),
        (lambda chain: chain.misplaced(2), FollowerRefusal.MALFORMED),
    ],
    ids=["hash", "data", "gap", "again", "history", "channel", "offsets"],
)
def test_a_bad_block_is_refused_its_peer_avoided_and_another_asked(
    chain: HandMadeChain, bad: object, reason: FollowerRefusal
) -> None:
    told = Told(chain)
    told.heights(a=10, b=10, c=10)
    liar = told.pull.peer
    told.asked = []
    told.give(chain.blocks[1], bad(chain))  # type: ignore[operator]
    assert told.appended == [1]
    assert told.refused == [(liar, reason)]
    assert set(told.asked) == {"a", "b", "c"} - {liar}
    others = dict.fromkeys(told.asked, 10)
    told.heights(**others)
    told.give(*chain.blocks[2:])
    assert told.appended == list(range(1, 10))


def test_bytes_that_are_no_block_are_refused(chain: HandMadeChain) -> None:
    told = Told(chain)
    told.heights(a=10, b=10, c=10)
    told.step(pulled(told.pull.pull, b"no block"))
    assert [reason for _, reason in told.refused] == [FollowerRefusal.CORRUPT]


def test_a_liar_is_asked_again_after_a_while_and_avoided_for_longer(chain: HandMadeChain) -> None:
    told = Told(chain)
    avoided = []
    for _ in range(3):
        told.heights(a=10, b=1, c=1)
        lied_at, told.asked = told.now_ms, []
        told.give(chain.blocks[5])
        while "a" not in told.asked:
            told.heights(**dict.fromkeys(told.asked, 1))
            told.wait()
        avoided.append(told.now_ms - lied_at)
    for found, least in zip(avoided, (30_000, 45_000, 67_500), strict=True):
        assert least <= found <= least + LIMITS.poll_ms_max + 1


def test_what_still_comes_of_an_abandoned_pull_is_passed_by(chain: HandMadeChain) -> None:
    told = Told(chain)
    told.heights(a=10, b=10, c=10)
    first = told.pull
    told.step(PeerFailed(first.peer))
    told.heights(**dict.fromkeys({"a", "b", "c"} - {first.peer}, 10))
    told.step(pulled(first.pull, encode_block(chain.blocks[1])))
    told.step(PullEnded(first.pull))
    assert told.appended == []
    told.give(*chain.blocks[1:])
    assert told.appended == list(range(1, 10))


def test_a_height_that_is_not_kept_to_is_a_lie(chain: HandMadeChain) -> None:
    told = Told(chain)
    told.heights(a=10**9, b=1, c=1)
    assert told.pull.peer == "a"
    told.step(PullEnded(told.pull.pull))
    assert told.refused == [("a", FollowerRefusal.UNKEPT)]


def test_a_pull_in_which_nothing_comes_is_given_up(chain: HandMadeChain) -> None:
    told = Told(chain)
    told.heights(a=10, b=1, c=1)
    told.give(chain.blocks[1])
    assert told.wait() == LIMITS.stall_ms
    assert told.refused == [("a", FollowerRefusal.UNKEPT)]
    assert sorted(told.asked) == ["b", "c"]


def test_who_cannot_be_reached_is_avoided_only_briefly(chain: HandMadeChain) -> None:
    told = Told(chain)
    told.heights(a=1, b=1)
    told.step(PeerFailed("c"))
    assert told.refused == [("c", FollowerRefusal.UNREACHABLE)]
    told.wait()
    assert sorted(told.asked) == ["a", "b", "c"], "by the next poll it has had its time"


def test_who_does_not_answer_is_not_waited_for(chain: HandMadeChain) -> None:
    told = Told(chain)
    told.heights(a=10, b=1)
    assert told.wait() == LIMITS.answer_ms
    assert told.pull.peer == "a"
    assert told.refused == [("c", FollowerRefusal.UNREACHABLE)]


def test_when_nobody_can_be_reached_it_waits_for_the_first_to_be_asked_again(
    chain: HandMadeChain,
) -> None:
    told = Told(chain)
    for peer in ("a", "b", "c"):
        told.step(PeerFailed(peer))
    told.wait()
    waited = told.now_ms
    while not told.asked:
        waited += told.wait()
    assert waited <= LIMITS.poll_ms_max
    told.heights(**dict.fromkeys(told.asked, 10))
    assert told.pull.start == 1


def test_a_configuration_that_names_it_makes_it_a_consenter(chain: HandMadeChain) -> None:
    chain.configure(config_of("a", "b", "me", sequence=1))
    chain.grow(2)
    told = Told(chain)
    told.heights(a=13, b=13, c=13)
    told.give(*chain.blocks[1:])
    assert told.other == [Promote(13)], "once it has what there was"
    assert told.appended[-1] == 12
    assert told.follower.deadline_ms is None
    told.step(DeadlineReached())
    assert told.other == [Promote(13)]


def test_a_consenter_of_the_past_goes_on_following(chain: HandMadeChain) -> None:
    chain.configure(config_of("a", "me", sequence=1))
    chain.configure(config_of("a", "b", sequence=2))
    told = Told(chain)
    told.heights(a=12, b=12, c=12)
    told.give(*chain.blocks[1:])
    assert told.other == []
    told.wait()
    assert sorted(told.asked) == ["a", "b"], "who consents now"


def test_named_and_nobody_left_to_pull_from(chain: HandMadeChain) -> None:
    chain.configure(config_of("me", sequence=1))
    chain.grow(3)
    told = Told(chain)
    told.heights(a=14, b=14, c=14)
    told.give(*chain.blocks[1:11])
    told.step(PeerFailed(told.pull.peer))
    assert told.other == [Promote(11)]


def test_one_that_is_named_already_is_promoted_at_once(chain: HandMadeChain) -> None:
    assert Told(chain, name="a").other == [Promote(1)]


def test_a_configuration_of_a_later_format_halts_it(chain: HandMadeChain) -> None:
    chain.configure_by(b'{"format": 2, "sequence": 1}')
    told = Told(chain)
    told.heights(a=11, b=1, c=1)
    told.give(*chain.blocks[1:])
    assert told.other == [HaltFollower(10, 2)]
    assert told.appended[-1] == 9


@pytest.mark.parametrize(
    "text", [b"{}", b'{"channel": "elsewhere", "sequence": 1}'], ids=["none", "elsewhere"]
)
def test_a_configuration_block_without_one_is_refused(chain: HandMadeChain, text: bytes) -> None:
    chain.configure_by(text)
    told = Told(chain)
    told.heights(a=11, b=1, c=1)
    told.give(*chain.blocks[1:])
    assert [peer for peer, _ in told.refused] == ["a"]
    assert told.appended[-1] == 9


def test_a_chain_is_pulled_from_its_genesis(chain: HandMadeChain) -> None:
    told = Told(chain, height=0, peers=["a", "me"])
    assert told.asked == ["a"]
    told.heights(a=10)
    told.give(*chain.blocks)
    assert told.appended == list(range(10))
    assert told.follower.configuration == config_of("a", "b", "c")


def test_a_first_block_that_is_no_configuration_is_refused(chain: HandMadeChain) -> None:
    told = Told(chain, height=0, peers=["a"])
    told.heights(a=10)
    told.give(chain.without_genesis().blocks[0])
    assert told.refused == [("a", FollowerRefusal.MALFORMED)]


class TestJoin:
    """Onboarding up to a block that the operator was given."""

    def test_the_block_is_shown_first_and_passed_last(self, chain: HandMadeChain) -> None:
        told = Told(chain, height=0, peers=["a"], join=chain.blocks[6])
        told.heights(a=10)
        assert (told.pull.start, told.pull.stop) == (6, 7)
        told.give(chain.blocks[6])
        assert (told.pull.start, told.pull.stop) == (0, 7)
        assert told.follower.is_onboarding
        told.give(*chain.blocks[:7])
        assert not told.follower.is_onboarding
        told.heights(a=10, b=10, c=10)
        assert (told.pull.start, told.pull.stop) == (7, 10)

    def test_a_peer_that_is_not_there_yet_is_waited_for(self, chain: HandMadeChain) -> None:
        told = Told(chain, height=0, peers=["a"], join=chain.blocks[6])
        told.heights(a=6)
        assert told.pull.pull == 0
        told.wait()
        told.heights(a=7)
        assert told.pull.start == 6

    def test_who_has_another_block_there_gives_nothing(self, chain: HandMadeChain) -> None:
        told = Told(chain, height=0, peers=["a", "b"], join=chain.blocks[6])
        told.heights(a=10, b=10)
        liar = told.pull.peer
        told.give(chain.twin("other").blocks[6])
        assert told.refused == [(liar, FollowerRefusal.JOIN_BLOCK)]
        honest = ({"a", "b"} - {liar}).pop()
        told.heights(**{honest: 10})
        told.give(chain.blocks[6])
        told.give(*chain.blocks[:7])
        assert told.appended == list(range(7))

    def test_nobody_has_the_block(self, chain: HandMadeChain) -> None:
        told = Told(chain, height=0, peers=["a"], join=chain.twin("other").blocks[6])
        told.heights(a=10)
        told.give(chain.blocks[6])
        assert told.other == [Diverged(0, FollowerRefusal.JOIN_BLOCK)]

    def test_a_history_that_does_not_lead_to_it_is_discarded(self, chain: HandMadeChain) -> None:
        """The right block is shown, and then a false history is given below it."""
        told = Told(chain, height=0, peers=["a", "b"], join=chain.blocks[6])
        told.heights(a=10, b=10)
        liar = told.pull.peer
        told.give(chain.blocks[6])
        told.give(*chain.twin("false").blocks[:6])
        told.give(chain.blocks[6])
        assert told.other == [Discard(0)]
        assert told.refused == [(liar, FollowerRefusal.PREVIOUS_HASH)]
        assert told.follower.height == 0
        honest = ({"a", "b"} - {liar}).pop()
        assert told.asked[-1] == honest
        told.heights(**{honest: 10})
        told.give(chain.blocks[6])
        told.appended.clear()
        told.give(*chain.blocks[:7])
        assert told.appended == list(range(7))

    def test_a_history_that_nobody_bears_out_is_discarded(self, chain: HandMadeChain) -> None:
        """A liar's blocks are here, and the liar is gone."""
        told = Told(chain, height=0, peers=["a", "b"], join=chain.blocks[6])
        told.heights(a=10, b=10)
        liar = told.pull.peer
        told.give(chain.blocks[6])
        told.give(*chain.twin("false").blocks[:3])
        told.step(PeerFailed(liar))
        honest = ({"a", "b"} - {liar}).pop()
        told.heights(**{honest: 10}, c=0)
        told.give(chain.blocks[6])
        told.give(chain.blocks[3])
        assert told.other == [Discard(0)]
        assert told.refused[-1] == (liar, FollowerRefusal.JOIN_BLOCK)
        assert told.asked[-1] == honest
        told.heights(**{honest: 10})
        told.give(chain.blocks[6])
        told.appended.clear()
        told.give(*chain.blocks[:7])
        assert told.appended == list(range(7))

    def test_a_node_that_is_named_joins_before_it_consents(self) -> None:
        chain = HandMadeChain(config_of("a", "me"))
        chain.grow(5)
        told = Told(chain, height=0, peers=["a"], join=chain.blocks[3])
        told.heights(a=6)
        told.give(chain.blocks[3])
        told.give(*chain.blocks[:4])
        assert told.other == [] and told.asked == ["a", "a"], "what is known to be is pulled first"
        told.heights(a=6)
        told.give(*chain.blocks[4:])
        assert told.other == [Promote(6)]


def test_all_peers_have_another_history(chain: HandMadeChain) -> None:
    """Told once: it is not for a program to decide who is right."""
    told = Told(chain.twin("mine"), height=4)
    for _ in range(2):
        for _ in range(3):
            told.heights(**dict.fromkeys(told.asked, 10))
            told.give(chain.blocks[4])
            told.asked = told.asked[-2:] if told.asked else []
        while not told.asked:
            told.wait()
    assert told.other == [Diverged(4, FollowerRefusal.PREVIOUS_HASH)]
    assert told.appended == []


class TestSignatures:
    """Where all consenters have keys, one of them has to have signed."""

    @pytest.fixture
    def signers(self) -> list[Signer]:
        return [Signer(name, name.encode() * 32) for name in "ab"]

    @pytest.fixture
    def config(self, signers: list[Signer]) -> ChannelConfig:
        return config_of("a", "b", keys=[s.identity.public_key for s in signers])

    def follower(self, config: ChannelConfig, chain: HandMadeChain) -> ChannelFollower:
        follower = ChannelFollower("me", CHANNEL, tip=chain.tip, configuration=config)
        follower.start(0)
        for peer in ("a", "b"):
            follower.step(HeightTold(peer, 3), 0)
        return follower

    def test_by_a_consenter(self, config: ChannelConfig, signers: list[Signer]) -> None:
        chain = HandMadeChain(config)
        follower = self.follower(config, chain)
        block = chain.add(b"one")
        signature = signers[1].sign_block(block.hash)
        effects = follower.step(BlockPulled(1, block, signature), 0)
        assert [e.block for e in effects if isinstance(e, AppendPulled)] == [block]

    @pytest.mark.parametrize("kind", ["none", "stranger", "another block's"])
    def test_by_nobody(self, config: ChannelConfig, signers: list[Signer], kind: str) -> None:
        chain = HandMadeChain(config)
        follower = self.follower(config, chain)
        block = chain.add(b"one")
        signature = {
            "none": None,
            "stranger": Signer("a", b"x" * 32).sign_block(block.hash),
            "another block's": signers[0].sign_block(chain.blocks[0].hash),
        }[kind]
        effects = follower.step(BlockPulled(1, block, signature), 0)
        assert [e.reason for e in effects if isinstance(e, Refuse)] == [FollowerRefusal.SIGNATURE]
        assert follower.height == 1
