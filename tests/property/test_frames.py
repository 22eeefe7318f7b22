"""What a ServerConnection takes in is what the oracle does, on any bytes in any pieces; and on whole frames as a naive
model.
"""

import functools
import itertools
import struct
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from streamlog.errors import ProtocolViolation
from streamlog.ingest.pub_ack_format import ack_head
from streamlog.nats.router import Router
from streamlog.record.codec import iter_records
from tests.nats_frames import COMPILED, PLAIN, Twin
from tests.oracles import acks as acks_oracle

VALUE_BYTES_MAX = 60
FRAME_BYTES_MAX = 200
SIDS = (1, 2)
REFUSED = b"refuse"
ASIDE = b"aside"
UNHEARD = b"unheard"
"""Replies of messages that are to go nowhere, to a run of their own, into the run unanswered."""


class Sent(NamedTuple):
    """A message as a publisher thinks of it."""

    subject: bytes
    sid: int
    reply: bytes
    headers: list[tuple[bytes, bytes]] | None
    payload: bytes

    def frame(self) -> bytes:
        target = b" ".join(filter(None, (self.subject, b"%d" % self.sid, self.reply)))
        head = self.block()
        sizes = b"%d %d" % (len(head), len(head) + len(self.payload))
        if self.headers is None:
            return b"MSG %b %d\r\n%b\r\n" % (target, len(self.payload), self.payload)
        return b"HMSG %b %b\r\n%b%b\r\n" % (target, sizes, head, self.payload)

    def block(self) -> bytes:
        if self.headers is None:
            return b""
        return b"NATS/1.0\r\n" + b"".join(b"%b: %b\r\n" % pair for pair in self.headers) + b"\r\n"


class Outcome(NamedTuple):
    """All that can be seen of a parser and its inflows after some bytes."""

    batches: list[bytes | None]
    aside: bytes | None
    replies: list[bytes]
    oversize: list[list[bytes]]
    keyless: list[list[bytes]]
    asked: list[tuple[Any, ...]]
    controls: list[tuple[str, bytes]]
    dropped: int
    pings: int
    error: type | None


words = st.binary(min_size=1, max_size=12).map(
    lambda raw: raw.translate(bytes.maketrans(b" \t\r\n", b"...."))
)
header_names = st.sampled_from(
    [b"A", b"Nats-Msg-Id", b"nats-x", b"Streamlog-Ack", b"Streamlog-Key", b"\xff", "é".encode()]
)
header_values = st.binary(max_size=8).map(
    lambda raw: raw.translate(bytes.maketrans(b"\r\n", b".."), b" \t")
)
messages = st.builds(
    Sent,
    subject=words,
    sid=st.sampled_from([1, 1, 2, 3]),
    reply=st.sampled_from([b"", b"_INBOX.abc", REFUSED, ASIDE, UNHEARD]) | words,
    headers=st.none() | st.lists(st.tuples(header_names, header_values), max_size=4),
    payload=st.binary(max_size=70),
)
controls = st.sampled_from([b"PING\r\n", b"+OK\r\n", b"-ERR 'x'\r\n", b'INFO {"a": "b c"} \r\n'])
rubbish = st.binary(max_size=30) | st.sampled_from(
    [b"\r\n", b"MSG a 1 5\r\nab", b"HMSG a 1 9 5\r\n", b"MSG a 1 999\r\n", b"MSG a b c d e f g\r\n"]
)


def parse(twin: Twin, pieces: list[bytes], *, keyed: bool = False) -> Outcome:
    """``keyed``: the first inflow is of a compacted stream."""
    asked: list[tuple[Any, ...]] = []

    def admit(index: int, *arguments: Any) -> Any:
        asked.append(arguments)
        runs = {ASIDE: aside, UNHEARD: inflows[index].run}
        return runs.get(arguments[2], arguments[2] != REFUSED)

    parser = twin.FrameParser(frame_bytes_max=FRAME_BYTES_MAX)
    inflows = [
        twin.RecordCollector(
            message_bytes_max=VALUE_BYTES_MAX, admit=functools.partial(admit, index)
        )
        for index in range(len(SIDS))
    ]
    inflows[0].keyed = keyed
    aside = type(inflows[0].run)()
    for sid, inflow in zip(SIDS, inflows, strict=True):
        parser.bind(sid, inflow)
    found: list[tuple[str, bytes]] = []
    error = None
    try:
        for piece in pieces:
            touched = parser.feed(piece)
            assert len(set(map(id, touched))) == len(touched)
            found += parser.take_controls()
    except ProtocolViolation as violation:
        error = type(violation)
    return Outcome(
        [
            inflow.run.seal(base_offset=7, leader_epoch=1, timestamp_ms=9)
            if inflow.run.count
            else None
            for inflow in inflows
        ],
        aside.seal(base_offset=0, leader_epoch=0, timestamp_ms=0) if aside.count else None,
        [inflow.take_replies() for inflow in inflows],
        [inflow.take_oversize() for inflow in inflows],
        [inflow.take_keyless() for inflow in inflows],
        asked,
        found,
        parser.dropped,
        parser.pings,
        error,
    )


def cut(data: bytes, points: list[int]) -> list[bytes]:
    """Pieces of ``data``, one more piece without bytes that lets a parser raise what it holds."""
    ends = sorted({point % (len(data) + 1) for point in points} | {0, len(data)})
    pieces = [data[start:end] for start, end in itertools.pairwise(ends)]
    return [*pieces, b"", b""]


points = st.lists(st.integers(0, 2**16), max_size=8)


@given(st.lists(messages | controls | rubbish, max_size=12), points, st.booleans())
@settings(max_examples=250, deadline=None)
def test_twins_are_equal_in_any_pieces(parts: list[Any], cuts: list[int], keyed: bool) -> None:
    data = b"".join(part.frame() if isinstance(part, Sent) else part for part in parts)
    whole = parse(COMPILED, [data, b"", b""], keyed=keyed)
    assert whole == parse(PLAIN, [data, b"", b""], keyed=keyed)
    assert whole == parse(COMPILED, cut(data, cuts), keyed=keyed)
    assert whole == parse(PLAIN, cut(data, cuts), keyed=keyed)


def kept_whole(twin: Twin, pieces: list[bytes]) -> tuple[Any, ...]:
    parser = twin.FrameParser(frame_bytes_max=FRAME_BYTES_MAX, whole=(1, 2, 3))
    found, controls, error = [], [], None
    try:
        for piece in pieces:
            assert parser.feed(piece) == []
            found += parser.take_messages()
            controls += parser.take_controls()
    except ProtocolViolation as violation:
        error = type(violation)
    return found, controls, parser.dropped, error


@given(st.lists(messages | controls | rubbish, max_size=12), points)
@settings(max_examples=250, deadline=None)
def test_messages_that_are_kept_whole_are_equal_in_any_pieces(
    parts: list[Any], cuts: list[int]
) -> None:
    data = b"".join(part.frame() if isinstance(part, Sent) else part for part in parts)
    whole = kept_whole(COMPILED, [data, b"", b""])
    assert whole == kept_whole(PLAIN, [data, b"", b""])
    assert whole == kept_whole(COMPILED, cut(data, cuts))
    assert whole == kept_whole(PLAIN, cut(data, cuts))
    if all(isinstance(part, Sent) for part in parts):
        wanted = [(it.sid, it.subject, it.reply, it.block(), it.payload) for it in parts]
        assert whole[0] == wanted[: len(whole[0])]
        assert whole[3] or len(whole[0]) == len(wanted)


@given(messages, messages)
@settings(max_examples=30, deadline=None)
def test_every_cut_point(first: Sent, second: Sent) -> None:
    data = first.frame() + b"PING\r\n" + second.frame()
    whole = parse(COMPILED, [data])
    for point in range(len(data) + 1):
        assert parse(COMPILED, [data[:point], data[point:]]) == whole


@given(st.binary(max_size=300), points)
@settings(max_examples=300, deadline=None)
def test_garbage(data: bytes, cuts: list[int]) -> None:
    assert parse(COMPILED, cut(data, cuts)) == parse(PLAIN, cut(data, cuts))


@given(messages, st.lists(st.tuples(st.integers(0, 2**16), st.integers(0, 255)), max_size=4))
@settings(max_examples=300, deadline=None)
def test_damaged_frames(message: Sent, damage: list[tuple[int, int]]) -> None:
    data = bytearray(message.frame() * 2)
    for position, byte in damage:
        data[position % len(data)] = byte
    pieces = [bytes(data), b"", b""]
    assert parse(COMPILED, pieces) == parse(PLAIN, pieces)


def is_utf8(name: bytes) -> bool:
    return name.decode(errors="replace").encode() == name


def asks(name: bytes) -> bool:
    return name.lower().startswith((b"nats-", b"streamlog-ack"))


@given(st.lists(messages, max_size=12), st.booleans())
@settings(max_examples=300, deadline=None)
def test_whole_messages_as_a_naive_model(sent: list[Sent], keyed: bool) -> None:
    outcome = parse(COMPILED, [message.frame() for message in sent], keyed=keyed)
    for index, sid in enumerate(SIDS):
        expected: list[Any] = []
        oversize: list[Any] = []
        keyless: list[Any] = []
        replies = b""
        compacted = keyed and index == 0
        for message in (message for message in sent if message.sid == sid):
            headers = [pair for pair in message.headers or [] if is_utf8(pair[0])]
            if len(message.block()) + len(message.payload) > VALUE_BYTES_MAX:
                oversize.append(b"" if message.reply.startswith(b"\0") else message.reply)
                continue
            keys = [value for name, value in headers if name == b"Streamlog-Key"]
            if compacted and not keys:
                keyless.append(b"" if message.reply.startswith(b"\0") else message.reply)
                continue
            asked = any(asks(name) for name, _ in headers)
            if asked and message.reply in (REFUSED, ASIDE):
                continue
            answered = message.reply and not message.reply.startswith(b"\0")
            if answered and not (asked and message.reply == UNHEARD):
                replies += struct.pack("<IH", len(expected), len(message.reply)) + message.reply
            fields = [(b"subject", message.subject)]
            if message.reply and not message.reply.startswith(b"_INBOX."):
                fields.append((b"reply", message.reply))
            payload = None if compacted and not message.payload else message.payload
            expected.append((keys[0] if keys else None, payload, fields + headers))
        batch = outcome.batches[index]
        records = list(iter_records(batch)) if batch else []
        assert [
            (record.key, record.value, [(name.encode(), value) for name, value in record.headers])
            for record in records
        ] == expected
        assert outcome.replies[index] == replies
        assert outcome.oversize[index] == oversize
        assert outcome.keyless[index] == keyless
    assert outcome.dropped == sum(message.sid not in SIDS for message in sent)
    assert outcome.error is None


entries = st.lists(st.tuples(st.integers(0, 2**32 - 1), st.binary(max_size=40)), max_size=20)


@given(entries, st.text(max_size=10), st.integers(0, 2**62), st.binary(max_size=40))
@settings(max_examples=200, deadline=None)
def test_acks(replies: list[tuple[int, bytes]], stream: str, offset: int, payload: bytes) -> None:
    packed = b"".join(struct.pack("<IH", delta, len(reply)) + reply for delta, reply in replies)
    acks = Router().acknowledge(packed, ack_head(stream), offset)
    assert acks == acks_oracle.build_acks(packed, ack_head(stream), offset)
    assert acks.count(b'"seq":') >= sum(not reply.startswith(b"\0") for _, reply in replies)
    refusals = Router().respond(packed, payload)
    assert refusals == acks_oracle.build_refusals(packed, payload)


@given(st.binary(max_size=60))
@settings(max_examples=300, deadline=None)
def test_acks_of_garbage(packed: bytes) -> None:
    def outcome(acknowledge: Any, respond: Any) -> Any:
        try:
            return acknowledge(packed, ack_head("s"), 1), respond(packed, b"no")
        except ValueError:
            return ValueError

    router = Router()
    plain = outcome(acks_oracle.build_acks, acks_oracle.build_refusals)
    assert outcome(router.acknowledge, router.respond) == plain
