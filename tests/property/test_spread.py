"""Both spreads choose the same partition for any message, and as a naive model of Kafka's does."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from streamlog.ingest.liftbridge.translate import envelope_key
from tests import enveloped
from tests.nats_frames import COMPILED, PLAIN, SID, Twin, block

subjects = st.binary(min_size=1, max_size=16).map(
    lambda raw: raw.translate(bytes.maketrans(b" \t\r\n\0", b"....."))
)
blocks = st.sampled_from(
    [
        b"",
        block(),
        block(b"A: b"),
        block(b"streamlog-key:   k", b"Streamlog-Key: other"),
        block(b"Streamlog-Key:"),
        b"NATS/1.0\r\nStreamlog-Key: cut",
        b"odd\r\nStreamlog-Key: k\r\n\r\n",
    ]
)
payloads = st.binary(max_size=12) | st.builds(
    lambda key, name: enveloped.envelope(enveloped.message(b"v", key=key, headers={name: b"h"})),
    st.binary(max_size=3),
    st.sampled_from([b"x", b"Streamlog-Key"]),
)
messages = st.tuples(subjects, blocks, payloads)
tokens = st.lists(st.integers(1, 5), max_size=3, unique=True)


def takers(twin: Twin, sent: list[Any], count: int, wanted: list[int]) -> list[list[Any]]:
    """The records of each partition."""
    inflows = [twin.RecordCollector(message_bytes_max=1000) for _ in range(count)]
    spread = twin.Partitioner(tokens=wanted, envelope_key=envelope_key)
    spread.share([*inflows[1:], None])
    parser = twin.FrameParser()
    parser.bind(SID, spread)
    for subject, head, payload in sent:
        sizes = len(head), len(head) + len(payload)
        parser.feed(b"HMSG %b %d %d %d\r\n%b%b\r\n" % (subject, SID, *sizes, head, payload))
    return [
        inflow.run.seal(base_offset=0, leader_epoch=0, timestamp_ms=0) if inflow.run.count else b""  # type: ignore[misc]
        for inflow in inflows
    ]


@given(st.lists(messages, max_size=8), st.integers(1, 5), tokens)
@settings(max_examples=300, deadline=None)
def test_twins_choose_the_same(sent: list[Any], count: int, wanted: list[int]) -> None:
    assert takers(COMPILED, sent, count, wanted) == takers(PLAIN, sent, count, wanted)


def naive_murmur2(data: bytes) -> int:
    """After the algorithm's description, in signed numbers, as Kafka's Java has it."""
    mixed = (0x9747B28C ^ len(data)) & 0xFFFFFFFF
    padded = data + b"\0" * (-len(data) % 4)
    words = [int.from_bytes(padded[i : i + 4], "little") for i in range(0, len(padded), 4)]
    tail = words.pop() if len(data) % 4 else None
    for word in words:
        once = word * 0x5BD1E995 % 2**32
        twice = (once ^ once >> 24) * 0x5BD1E995 % 2**32
        mixed = mixed * 0x5BD1E995 % 2**32 ^ twice
    if tail is not None:
        mixed = (mixed ^ tail) * 0x5BD1E995 % 2**32
    mixed = (mixed ^ mixed >> 13) * 0x5BD1E995 % 2**32
    return mixed ^ mixed >> 15


@given(st.binary(max_size=40))
@settings(max_examples=500, deadline=None)
def test_hashes(data: bytes) -> None:
    assert COMPILED.murmur2(data) == PLAIN.murmur2(data) == naive_murmur2(data)
