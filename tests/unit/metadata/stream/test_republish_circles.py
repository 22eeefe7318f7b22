"""No message goes round between streams for ever."""

import random

import pytest

from streamlog.errors import InvalidStreamConfig
from streamlog.metadata.stream.republish import Republish
from streamlog.metadata.stream.republish_circles import check_circle
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.metadata.stream.subjects import overlap


def stream(name: str, republish: str = "", **settings: object) -> StreamConfig:
    return StreamConfig.of(name=name, subjects=(f"{name}.>",), republish=republish, **settings)


def is_circle(*configs: StreamConfig) -> bool:
    """Whether the last one is refused because of the others."""
    try:
        check_circle(configs[-1], configs[:-1])
    except InvalidStreamConfig as error:
        assert "cycle" in str(error)
        return True
    return False


def test_two_streams_and_many() -> None:
    a, b, c = stream("a", "> -> b.>"), stream("b", "> -> c.>"), stream("c", "> -> a.>")
    assert is_circle(stream("b", "> -> a.>"), a)
    assert is_circle(a, b, c)
    assert is_circle(c, a, b)
    assert not is_circle(a, b, stream("c"))
    assert not is_circle(a, b, stream("c", "> -> d.>"))
    assert not is_circle(stream("a", "> -> x.>"), b, c), "as it was"
    assert not is_circle(a, b, c, stream("a", "> -> d.>")), "it is changed, and the circle open"


def test_what_is_not_published_again_ends_the_chain() -> None:
    a = stream("a", "a.in.* -> b.$1")
    assert is_circle(a, stream("b", "b.* -> a.in.$1"))
    assert not is_circle(a, stream("b", "b.* -> a.out.$1"))
    renaming = stream("a", "a.in.* -> b.$1", subject_transform="a.out.* -> a.in.$1")
    assert is_circle(renaming, stream("b", "b.* -> a.out.$1"))


def test_other_partitions_are_heard_too() -> None:
    orders = StreamConfig.of(
        name="o", subjects=("orders",), partitions=3, republish="orders.2 -> seen.orders"
    )
    assert is_circle(orders, StreamConfig.of(
        name="seen", subjects=("seen.orders",), republish="seen.orders -> orders.2"))  # fmt: skip


def test_who_publishes_nothing_again_is_compared_with_nothing() -> None:
    others = iter([stream("b", "> -> a.>")])
    check_circle(stream("a"), others)
    assert len(list(others)) == 1


def test_comparing_ends() -> None:
    many = tuple(f"x.{number}" for number in range(1_000))
    others = [
        StreamConfig.of(name=f"s{n}", subjects=many, republish="x.7 -> y.z") for n in range(60)
    ]
    with pytest.raises(InvalidStreamConfig, match="too many"):
        check_circle(stream("a", "a.b -> x.7"), others)


def test_a_message_that_comes_back_is_foreseen() -> None:
    """Random streams, and a message that is handed on by what the streams really do."""
    chance = random.Random(7)
    circles = 0
    for _ in range(300):
        configs: list[StreamConfig] = []
        for name in "abcd":
            other = chance.choice([it for it in "abcd" if it != name])
            ways = ("", f"> -> {other}.>", f"{name}.1 -> {other}.{chance.choice('12')}")
            config = stream(name, chance.choice(ways))
            if is_circle(*configs, config):
                circles += 1
            else:
                configs.append(config)
        for start in ("a.1", "b.1", "c.2", "d.1"):
            subjects, steps = {start}, 0
            while subjects:
                steps += 1
                assert steps <= len(configs) + 1, "it goes round"
                subjects = {
                    said
                    for it in configs
                    for subject in subjects
                    if it.republish and any(overlap(own, subject) for own in it.subjects)
                    if (said := Republish.parse(it.republish).transform(subject)) is not None
                }
    assert circles > 20
