"""Streams of all that a ledger may meet, with the chain that the naive twin cuts out of them.

Made from a seed and a size rather than drawn piece by piece: long streams are what finds mistakes.
"""

from random import Random
from typing import Any, NamedTuple

from hypothesis import strategies as st

from streamlog.ledger.core.channel_config import BatchLimits, ChannelConfig, Identity
from streamlog.ledger.core.entry import (
    BLOCK_HEADER,
    CONFIGURATION,
    KIND_HEADER,
    SIGNATURE_HEADER,
    SIGNER_HEADER,
    TIME_TO_CUT,
    Message,
    configuration,
    signed,
    time_to_cut,
)
from streamlog.record.codec import Record
from tests.ledger_stream import ANN, BOB, EVE, channel, limits, placed
from tests.naive_ledger import NaiveLedger

SIZE_MAX = 80
MALFORMED = (
    Message(None, b"", ((KIND_HEADER, b"something"),)),
    Message(None, b"", ((KIND_HEADER, None),)),
    Message(None, None, ((KIND_HEADER, CONFIGURATION),)),
    Message(None, b'{"channel":', ((KIND_HEADER, CONFIGURATION),)),
    Message(None, b"", ((KIND_HEADER, TIME_TO_CUT),)),
    Message(None, b"", ((KIND_HEADER, TIME_TO_CUT), (BLOCK_HEADER, b"-1"))),
    Message(None, b"", ((KIND_HEADER, TIME_TO_CUT), (BLOCK_HEADER, b"01"))),
    Message(None, b"x", ((SIGNER_HEADER, b"ann"), (SIGNATURE_HEADER, b"A" * 88))),
    Message(None, b"x", ((SIGNER_HEADER, b"ann"), (SIGNATURE_HEADER, b"\xff"))),
    Message(None, b"x", ((SIGNER_HEADER, b"\xff"),)),
)

contents = st.one_of(st.none(), st.binary(max_size=60))
names = st.one_of(st.just("subject"), st.text(max_size=6)).filter(lambda name: name != KIND_HEADER)
headers = st.lists(st.tuples(names, contents), max_size=3).map(tuple)
messages = st.builds(Message, st.one_of(st.none(), st.binary(max_size=5)), contents, headers)


class LedgerStream(NamedTuple):
    """A stream, and what every ordering node must come to."""

    records: list[Record]
    blocks: list[bytes]


class StreamMaker:
    """Says what comes next, with a look at how far the chain is."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.is_closed = rng.random() < 0.4

    def limits(self) -> BatchLimits:
        rng = self.rng
        return limits(rng.choice((1, 2, 3, 7, 50)), rng.choice((1, 100, 300, 1_000)))

    def identities(self) -> tuple[Identity, ...]:
        rng = self.rng
        return tuple(who.identity for who in (ANN, BOB) if self.is_closed and rng.random() < 0.6)

    def genesis(self, start_offset: int) -> Message:
        return configuration(
            channel(
                limits=self.limits(),
                writers=self.identities(),
                administrators=self.identities(),
                start_offset=start_offset,
            )
        )

    def next(self, ledger: NaiveLedger) -> Message:
        rng, kind = self.rng, self.rng.random()
        if kind < 0.65:
            return self.ordinary()
        if kind < 0.85:
            ahead = rng.choice((0, 0, 0, 0, -1, 1, 9))
            return time_to_cut(max(0, len(ledger.blocks) + ahead), "n")
        if kind < 0.95:
            return self.update(ledger)
        return rng.choice(MALFORMED)

    def ordinary(self) -> Message:
        rng = self.rng
        key = rng.choice((None, None, b"", b"key"))
        value = rng.choice((None, b"", *(rng.randbytes(size) for size in (5, 30, 60, 150, 400))))
        found = (("subject", b"a.b"), ("subject", None), ("\u00fc", b"\xff"))
        message = Message(key, value, tuple(rng.sample(found, rng.choice((0, 0, 1, 3)))))
        if not self.is_closed or rng.random() < 0.1:
            return message
        return signed(message, "c", rng.choice((ANN, ANN, ANN, BOB, EVE)))

    def update(self, ledger: NaiveLedger) -> Message:
        rng = self.rng
        now = ChannelConfig.model_validate_json(ledger.config_text)
        change: dict[str, Any] = {
            "limits": self.limits(),
            "writers": self.identities(),
            "administrators": self.identities(),
            "start_offset": now.start_offset + rng.choice((0, 0, 0, 0, 1)),
            "channel": rng.choice(("c", "c", "c", "c", "d")),
        }
        wanted = {key: change[key] for key in change if rng.random() < 0.5}
        sequence = max(0, now.sequence + rng.choice((1, 1, 1, 1, 0, 2)))
        update = ChannelConfig.model_validate({**dict(now), **wanted, "sequence": sequence})
        return configuration(update, rng.choice((ANN, ANN, BOB, EVE, None)))


def ledger_stream(seed: int, size: int) -> LedgerStream:
    """Its genesis may lie anywhere, its offsets may have gaps."""
    rng = Random(seed)
    maker = StreamMaker(rng)
    offsets = [rng.choice((0, 3))]
    for _ in range(size):
        offsets.append(offsets[-1] + rng.choice((1, 1, 1, 1, 2)))
    place = rng.choice(offsets[: 1 + size // 4])
    genesis = placed(maker.genesis(rng.choice((0, 0, place, rng.randint(0, place)))), place)
    ledger = NaiveLedger([genesis])
    records = []
    for offset in offsets:
        record = genesis if offset == place else placed(maker.next(ledger), offset)
        if offset < place and b'"sequence":0' in (record.value or b""):
            continue  # it might be the stream's genesis
        records.append(record)
        ledger.take(record)
    return LedgerStream(records, ledger.blocks)


def ledger_streams(size_max: int = SIZE_MAX) -> st.SearchStrategy[LedgerStream]:
    return st.builds(ledger_stream, st.integers(0, 2**32), st.integers(0, size_max))
