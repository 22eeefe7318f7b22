from typing import Any

import pytest

from tests.nats_frames import COMPILED, PLAIN, SID, Twin, block, hmsg, msg, records

TWINS: list[Any] = [pytest.param(PLAIN, id="plain"), pytest.param(COMPILED, id="compiled")]


@pytest.fixture(params=TWINS)
def twin(request: pytest.FixtureRequest) -> Twin:
    chosen: Twin = request.param
    return chosen


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_hashes_that_kafka_tests_its_own_with(twin: Twin, key: bytes, hashed: int) -> None:
    assert twin.murmur2(key) == hashed % 2**32


class Spread:
    """A parser whose one sid is spread over so many partitions."""

    def __init__(self, twin: Twin, count: int, **settings: Any) -> None:
        self.inflows = [twin.RecordCollector(message_bytes_max=1000, owner=i) for i in range(count)]
        self.spread = twin.Partitioner(**settings)
        self.spread.share(self.inflows)
        self.parser = twin.FrameParser()
        self.parser.bind(SID, self.spread)

    def takers(self, *frames: bytes) -> list[int]:
        return [inflow.owner for inflow in self.parser.feed(b"".join(frames))]


def keyed(key: bytes, payload: bytes = b"v") -> bytes:
    return hmsg(block(b"Streamlog-Key: " + key), payload)


def test_by_key(twin: Twin) -> None:
    """Partitions of three: Kafka's positive hash, modulo."""
    spread = Spread(twin, 3)
    for key in (b"21", b"foobar", b"abc"):
        assert spread.takers(keyed(key)) == [(twin.murmur2(key) & 0x7FFFFFFF) % 3]
    assert sum(len(records(inflow)) for inflow in spread.inflows) == 3


def test_without_a_key_by_the_subject(twin: Twin) -> None:
    spread = Spread(twin, 7)
    for subject in (b"a", b"a.b", b"a.c"):
        expected = [(twin.murmur2(subject) & 0x7FFFFFFF) % 7]
        assert spread.takers(msg(b"v", subject)) == expected
        assert spread.takers(msg(b"v", subject)) == expected


def test_by_tokens(twin: Twin) -> None:
    spread = Spread(twin, 5, tokens=(2, 4))

    def chosen(text: bytes) -> list[int]:
        return [(twin.murmur2(text) & 0x7FFFFFFF) % 5]

    for subject, text in {
        b"a.b.c.d": b"b.d",
        b"x.b.y.d.z": b"b.d",
        b"a.b.c": b"b",
        b"a": b"",
        b"a..c.d": b".d",
        b"a.b.c.": b"b.",
    }.items():
        assert spread.takers(msg(b"v", subject)) == chosen(text), subject
    spread.spread.tokens = (4, 2)
    assert spread.takers(msg(b"v", b"a.b.c.d")) == chosen(b"d.b")


def test_what_is_in_an_envelope_is_asked_for(twin: Twin) -> None:
    asked: list[Any] = []

    def envelope_key(*arguments: Any) -> bytes | None:
        asked.append(arguments)
        return b"foobar" if len(asked) == 1 else None

    spread = Spread(twin, 7, envelope_key=envelope_key)
    magic = b"\xb9\x0e\x43\xb4" + b"rest"
    assert spread.takers(msg(magic)) == [(twin.murmur2(b"foobar") & 0x7FFFFFFF) % 7]
    assert spread.takers(keyed(b"21", magic)) == [(twin.murmur2(b"orders") & 0x7FFFFFFF) % 7]
    assert asked == [(magic, None), (magic, b"21")]


def test_what_is_not_ours_is_left_to_others(twin: Twin) -> None:
    spread = Spread(twin, 3)
    (taker,) = spread.takers(keyed(b"21"))
    spread.spread.share([None if i == taker else spread.inflows[i] for i in range(3)])
    assert spread.takers(keyed(b"21")) == []
    spread.spread.share([])
    assert spread.takers(keyed(b"21"), msg()) == []
    assert spread.parser.dropped == 0


def test_sids_of_both_kinds_in_turn(twin: Twin) -> None:
    spread = Spread(twin, 1)
    alone = twin.RecordCollector(message_bytes_max=10, owner="alone")
    spread.parser.bind(SID + 1, alone)
    frames = [msg(b"1"), msg(b"2", sid=SID + 1), msg(b"3"), msg(b"4", sid=SID + 1), msg(b"5")]
    assert spread.takers(*frames) == [0, "alone"]
    assert [record.value for record in records(spread.inflows[0])] == [b"1", b"3", b"5"]
    assert [record.value for record in records(alone)] == [b"2", b"4"]
    spread.parser.unbind(SID)
    assert spread.takers(*frames) == ["alone"]
    assert spread.parser.dropped == 3
