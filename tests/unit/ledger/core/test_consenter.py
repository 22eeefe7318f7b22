import pytest

from streamlog.ledger.core.chain import ChainTip, genesis_block
from streamlog.ledger.core.channel_config import ChannelConfig
from streamlog.ledger.core.consenter import (
    REPEAT_MS_MAX,
    AppendBlock,
    ConfigurationChanged,
    Consenter,
    Effect,
    HaltChannel,
    PostTimeToCut,
    RecordsConsumed,
    Skipped,
    SkipReason,
    StartTimer,
    StopTimer,
    TimerExpired,
)
from streamlog.ledger.core.entry import (
    CONFIGURATION,
    KIND_HEADER,
    Message,
    configuration,
    signed,
    time_to_cut,
)
from tests.ledger_stream import ANN, EVE, channel, limits, placed, plain, stream

TIMEOUT_MS = 100


class Node:
    """A consenter that is fed messages, one offset after the other; the genesis has offset 0."""

    def __init__(self, config: ChannelConfig | None = None) -> None:
        self.config = channel() if config is None else config
        genesis = genesis_block(placed(configuration(self.config), 0))
        assert genesis is not None
        self.consenter = Consenter(ChainTip.of(genesis), self.config)
        self.offset = 1

    def take(self, *messages: Message) -> list[Effect]:
        records = stream(messages, self.offset)
        self.offset += len(messages)
        return self.consenter.step(RecordsConsumed(records))

    def expire(self, number: int) -> list[Effect]:
        return self.consenter.step(TimerExpired(number))


def told(effects: list[Effect]) -> list[object]:
    """Blocks by number, records and reason; what is skipped by its reason."""
    return [
        (effect.block.number, effect.block.header.record_count, effect.reason.value)
        if isinstance(effect, AppendBlock)
        else effect.reason
        if isinstance(effect, Skipped)
        else effect
        for effect in effects
    ]


def test_the_timer_starts_with_the_first_pending_record() -> None:
    node = Node()
    assert node.take(*plain(b"a")) == [StartTimer(1, TIMEOUT_MS)]
    assert node.take(*plain(b"b")) == []
    assert told(node.take(*plain(b"c"))) == [(1, 3, "records"), StopTimer()]
    assert node.take() == []


def test_a_run_ends_with_one_timer() -> None:
    node = Node()
    timer = StartTimer(3, TIMEOUT_MS)
    assert told(node.take(*plain(*[b"x"] * 7))) == [
        (1, 3, "records"),
        (2, 3, "records"),
        timer,
    ]
    assert told(node.take(*plain(b"y", b"z", b"0"))) == [
        (3, 3, "records"),
        StartTimer(4, TIMEOUT_MS),
    ]


def test_who_has_more_to_read_starts_no_timer() -> None:
    node = Node()
    a, b, c, d, e = stream(plain(*[b"x"] * 5), 1)
    step = node.consenter.step
    assert step(RecordsConsumed([a], has_more=True)) == []
    assert step(RecordsConsumed([b])) == [StartTimer(1, TIMEOUT_MS)]
    effects = step(RecordsConsumed([c, d], has_more=True))
    assert told(effects) == [(1, 3, "records"), StopTimer()]
    assert step(RecordsConsumed([], has_more=True)) == []
    assert step(RecordsConsumed([])) == [StartTimer(2, TIMEOUT_MS)]
    assert step(RecordsConsumed([e], has_more=True)) == []
    assert node.expire(2)[0] == PostTimeToCut(2)


def test_time_out_posts_and_never_cuts() -> None:
    node = Node()
    node.take(*plain(b"a"))
    assert node.expire(1) == [PostTimeToCut(1), StartTimer(1, 1_000)]
    assert node.consenter.tip.number == 0
    assert told(node.take(time_to_cut(1, "n"))) == [(1, 1, "time"), StopTimer()]


def test_a_lost_marker_is_posted_again_ever_more_seldom() -> None:
    node = Node()
    node.take(*plain(b"a"))
    waits = []
    for _ in range(9):
        post, timer = node.expire(1)
        assert post == PostTimeToCut(1)
        assert isinstance(timer, StartTimer)
        waits.append(timer.after_ms)
    assert waits[:3] == [1_000, 2_000, 4_000]
    assert waits[-1] == REPEAT_MS_MAX


def test_an_old_time_out_is_void() -> None:
    node = Node()
    node.take(*plain(b"a", b"b", b"c"))
    assert node.expire(1) == []
    node.take(*plain(b"d"))
    assert node.expire(1) == []
    assert node.expire(3) == []


def test_only_the_first_marker_of_the_next_block_cuts() -> None:
    node = Node()
    markers = [time_to_cut(number, "n") for number in (0, 2, 99, 1, 1)]
    assert told(node.take(*plain(b"a"), *markers, *plain(b"b"), time_to_cut(1, "n"))) == [
        SkipReason.STALE_TIME_TO_CUT,
        SkipReason.EARLY_TIME_TO_CUT,
        SkipReason.EARLY_TIME_TO_CUT,
        (1, 1, "time"),
        SkipReason.STALE_TIME_TO_CUT,
        SkipReason.STALE_TIME_TO_CUT,
        StartTimer(2, TIMEOUT_MS),
    ]


def test_an_empty_marker_cuts_nothing_and_leaves_its_number() -> None:
    node = Node()
    assert told(node.take(time_to_cut(1, "n"))) == [SkipReason.EMPTY_TIME_TO_CUT]
    assert told(node.take(*plain(b"a"), time_to_cut(1, "n"))) == [(1, 1, "time")]


def test_a_cut_by_time_goes_on_after_the_marker() -> None:
    node = Node()
    node.take(*plain(b"a"), time_to_cut(0, "n"), time_to_cut(1, "n"))
    assert node.consenter.tip.next_offset == 4


def test_a_configuration_takes_effect_at_once() -> None:
    node = Node()
    update = channel(sequence=1, limits=limits(batch_size=1))
    effects = node.take(*plain(b"a"), configuration(update), *plain(b"b"))
    assert told(effects) == [
        (1, 1, "configuration"),
        (2, 1, "configuration"),
        ConfigurationChanged(update, 2),
        (3, 1, "records"),
    ]
    assert node.consenter.config == update
    assert node.consenter.tip.last_configuration == 2


def test_what_is_no_configuration_of_the_channel_is_left_out() -> None:
    node = Node(channel(administrators=(ANN.identity,)))
    other = channel(sequence=1).model_copy(update={"channel": "d"})
    effects = node.take(
        configuration(node.config, ANN),
        configuration(channel(sequence=2), ANN),
        configuration(other, ANN),
        configuration(channel(sequence=1)),
        configuration(channel(sequence=1), EVE),
        Message(None, b"{", ((KIND_HEADER, CONFIGURATION),)),
        *plain(b"a"),
    )
    assert told(effects) == [
        SkipReason.STALE_CONFIGURATION,
        SkipReason.STALE_CONFIGURATION,
        SkipReason.INVALID_CONFIGURATION,
        SkipReason.SIGNATURE,
        SkipReason.SIGNATURE,
        SkipReason.MALFORMED,
        StartTimer(1, TIMEOUT_MS),
    ]


def test_unsigned_records_are_left_out_where_writers_are_named() -> None:
    node = Node(channel(writers=(ANN.identity,)))
    x = Message(None, b"x")
    effects = node.take(x, signed(x, "c", EVE), signed(x, "c", ANN), time_to_cut(1, "n"))
    assert told(effects) == [SkipReason.SIGNATURE, SkipReason.SIGNATURE, (1, 1, "time")]
    opened = configuration(channel(sequence=1), ANN)
    assert told(node.take(opened, x, time_to_cut(3, "n"))) == [
        (2, 1, "configuration"),
        ConfigurationChanged(channel(sequence=1), 2),
        (3, 1, "time"),
    ]


@pytest.mark.parametrize(
    ("sequence", "signer", "halts"), [(1, ANN, True), (1, EVE, False), (2, ANN, False)]
)
def test_a_later_format_halts_where_it_would_be_in_force(
    sequence: int, signer: object, halts: bool
) -> None:
    node = Node(channel(writers=(ANN.identity,)))
    text = channel(sequence=sequence).encode().replace(b'"format":1', b'"format":2')
    message = Message(None, text, ((KIND_HEADER, CONFIGURATION),))
    later = signed(message, "c", ANN if signer is ANN else EVE)
    x = signed(Message(None, b"x"), "c", ANN)
    effects = node.take(x, later, x, x)
    assert any(isinstance(effect, HaltChannel) for effect in effects) == halts
    assert node.consenter.is_halted == halts
    assert (node.consenter.tip.number == 0) == halts
    assert (node.take(x, time_to_cut(1, "n")) == []) == halts


def test_what_was_consumed_is_passed_over() -> None:
    node = Node()
    records = stream(plain(*[b"x"] * 8), 1)
    effects = node.consenter.step(RecordsConsumed(records[:4]))
    effects += node.consenter.step(RecordsConsumed(records[2:]))
    assert told(effects) == [
        (1, 3, "records"),
        StartTimer(2, TIMEOUT_MS),
        (2, 3, "records"),
        StartTimer(3, TIMEOUT_MS),
    ]
    assert node.consenter.next_offset == 9
