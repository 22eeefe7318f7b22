"""Envelopes of any content open to what was put in; anything else stays what it was."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlog.ingest.liftbridge.addresses import ReplyAddress, parted
from streamlog.ingest.liftbridge.envelope import (
    ACK_INBOX_BYTES_MAX,
    CORRELATION_ID_BYTES_MAX,
    MAGIC,
    decode,
    stored,
)
from streamlog.ingest.liftbridge.envelope_codec import build_enveloped_acks, open_plain
from streamlog.ingest.liftbridge.translate import EnvelopeTranslator, TranslatedEnvelope
from streamlog.ingest.pub_ack_format import ROUTED, pack_reply, publication
from streamlog.nats.router import Callback, Router, Subscription
from tests import enveloped
from tests.nats_frames import COMPILED, PLAIN, SID, Twin, hmsg, msg

texts = st.text(max_size=8).map(str.encode)
inboxes = st.lists(st.sampled_from([b"acks", b"_INBOX", b"7", "ä".encode()]), max_size=3).map(
    b".".join
)
parts = st.fixed_dictionaries(
    {
        "value": st.binary(max_size=20),
        "key": st.binary(max_size=5),
        "headers": st.dictionaries(
            texts | st.sampled_from([b"Nats-Msg-Id", b"Streamlog-Key", b"reply"]),
            st.binary(max_size=8),
            max_size=3,
        ),
        "inbox": inboxes,
        "correlation_id": texts,
        "policy": st.integers(-(2**31), 2**31 - 1) | st.sampled_from([0, 1, 2]),
    }
)
envelopes = st.builds(
    lambda content, checked: enveloped.envelope(enveloped.message(**content), checked=checked),
    parts,
    st.booleans(),
)
cut_envelopes = st.builds(
    lambda data, end: data[: end % (len(data) + 1)], envelopes, st.integers(0)
)
damaged = st.builds(
    lambda data, at, byte: data[: (i := at % len(data))] + bytes([byte]) + data[i + 1 :],
    envelopes,
    st.integers(0),
    st.integers(0, 255),
)
rubbish = st.binary(max_size=40).map(lambda data: MAGIC + bytes((0, 8, 0, 0)) + data)


@given(parts, st.booleans())
@settings(max_examples=300, deadline=None)
def test_what_was_put_in_comes_out(content: dict[str, Any], checked: bool) -> None:
    found = decode(enveloped.envelope(enveloped.message(**content), checked=checked))
    assert found is not None
    assert found == (
        content["key"] or None,
        content["value"],
        tuple(content["headers"].items()),
        content["inbox"],
        content["correlation_id"],
        content["policy"],
    )


@given(st.binary(max_size=80) | cut_envelopes | damaged | rubbish)
@settings(max_examples=500, deadline=None)
def test_no_bytes_break_it(data: bytes) -> None:
    found = decode(data)
    if found is not None:
        assert len(found.ack_inbox) <= ACK_INBOX_BYTES_MAX
        assert len(found.correlation_id) <= CORRELATION_ID_BYTES_MAX
        assert not {*found.ack_inbox} & {*b" \t\r\n"}
        assert not {*found.ack_inbox.split(b".")} & {b"*", b">"}  # a wildcard is a whole token
        found.correlation_id.decode()


groups = st.sampled_from([b"\x0b\x0c", b"\x0b", b"\x0c", b"\x0b\x14"])
fixed = st.sampled_from([b"\x09" + bytes(8), b"\x0d" + bytes(4), b"\x09" + bytes(7), b"\x0e"])
numbers = st.builds(
    lambda field, more: bytes([field * 8]) + more,
    st.sampled_from([2, 3, 10, 12]),
    st.binary(min_size=1, max_size=11) | st.just(b"\xff" * 9 + b"\x01"),
)
bodies = st.lists(
    groups
    | fixed
    | numbers
    | st.builds(enveloped.text, st.integers(0, 13), st.binary(max_size=6) | texts)
    | st.builds(lambda name, value: enveloped.text(9, name + value), texts, st.binary(max_size=4)),
    max_size=5,
).map(b"".join)
headed = st.builds(
    lambda length, flags, kind, rest: MAGIC + bytes((0, length, flags, kind)) + rest,
    st.sampled_from([0, 7, 8, 9, 12, 40]),
    st.sampled_from([0, 1, 2, 3]),
    st.sampled_from([0, 0, 0, 1]),
    st.binary(max_size=20),
)


@given(
    envelopes
    | cut_envelopes
    | damaged
    | rubbish
    | headed
    | st.builds(
        lambda body, checked: enveloped.envelope(body, checked=checked), bodies, st.booleans()
    )
)
@settings(max_examples=2_000, deadline=None)
def test_compiled_reader_reads_what_the_plain_one_does_or_nothing(data: bytes) -> None:
    assert open_plain(data) in (None, decode(data))


@given(parts, st.booleans())
@settings(max_examples=300, deadline=None)
def test_compiled_reader_reads_ordinary_envelopes(content: dict[str, Any], checked: bool) -> None:
    data = enveloped.envelope(enveloped.message(**content), checked=checked)
    is_plain = all(
        text.isascii()
        for text in (content["inbox"], content["correlation_id"], *content["headers"])
    )
    assert open_plain(data) == (decode(data) if is_plain else None)


def test_compiled_reader_checks_long_bodies() -> None:
    for size in (0, 1, 7, 8, 9, 1_000, 65_000):
        body = enveloped.message(bytes(number % 251 for number in range(size)))
        data = enveloped.envelope(body, checked=True)
        assert open_plain(data) == decode(data) is not None
        for at in range(8, len(data), 1 + len(data) // 50):
            changed = data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]
            assert open_plain(changed) is None


addresses = st.builds(
    ReplyAddress,
    st.sampled_from([b"", b"r", b"desk.1", ROUTED + b"r"]),
    st.sampled_from([b"", b"acks", b"_INBOX.7", ROUTED + b"_INBOX.8"]),
    st.sampled_from([enveloped.LEADER, enveloped.ALL, enveloped.NONE]),
    st.binary(max_size=20),
).map(ReplyAddress.packed)


@given(
    st.lists(st.tuples(st.integers(0, 2**32 - 1), addresses | inboxes), max_size=6),
    st.sampled_from([0, 1, 9, 127, 128, 2**40]),
    st.sampled_from([0, 127, 10**18]),
)
@settings(max_examples=300, deadline=None)
def test_compiled_acks_are_the_plain_ones(
    asked: list[tuple[int, bytes]], base_offset: int, committed_ns: int
) -> None:
    packed = b"".join(pack_reply(position, reply) for position, reply in asked)
    subjects, found = parted(packed)
    answers = [
        answer
        for position, address in found
        for answer in address.answers(
            b'{"seq":%d}' % (base_offset + position + 1),
            stored(base_offset + position, committed_ns),
        )
    ]
    acks = b"".join(
        publication(reply, payload) for reply, payload in answers if not reply.startswith(ROUTED)
    )
    router, routed = Router(), list[tuple[bytes, bytes]]()
    taker = Callback(router, failed=fail)
    router.add(Subscription(taker, b">", target=lambda *it: routed.append((ROUTED + it[0], it[3]))))
    built = build_enveloped_acks(packed, b'{"seq":', base_offset, committed_ns, router)
    assert built == (acks, subjects)
    assert routed == [answer for answer in answers if answer[0].startswith(ROUTED)]


def fail(error: Exception) -> None:
    raise error


@pytest.mark.parametrize("cut", range(1, 39))
def test_acks_of_cut_replies_are_refused(cut: int) -> None:
    packed = pack_reply(0, ReplyAddress(b"r" * 9, b"acks" * 5, enveloped.ALL, b"").packed())
    with pytest.raises(ValueError, match="cut"):
        build_enveloped_acks(packed[:-cut], b"", 0, 0, Router())
    inside = pack_reply(0, packed[6:-cut])
    with pytest.raises(ValueError, match="cut"):
        build_enveloped_acks(inside, b"", 0, 0, Router())


@given(envelopes, st.integers(0), st.integers(0, 255))
@settings(max_examples=300, deadline=None)
def test_damage_behind_a_checksum_is_seen(data: bytes, at: int, byte: int) -> None:
    body = data[data[5] :]
    checked = bytearray(enveloped.envelope(body, checked=True))
    at = 8 + at % (len(checked) - 8)
    if checked[at] != byte:
        checked[at] = byte
        assert decode(bytes(checked)) is None


def gathered(twin: Twin, frames: bytes, pieces: int, *, keyed: bool) -> Any:
    """All that can be seen of an inflow after them."""
    asked: list[tuple[Any, ...]] = []
    opener = EnvelopeTranslator("orders")

    def opened(*frame: bytes) -> TranslatedEnvelope | None:
        return opener.open(*frame, patterns=("orders",), now_ns=7)

    def admit(*arguments: Any) -> bool:
        asked.append(arguments)
        return len(asked) % 4 != 0

    inflow = twin.RecordCollector(message_bytes_max=70, admit=admit, open_envelope=opened)
    inflow.keyed = keyed
    parser = twin.FrameParser()
    parser.bind(SID, inflow)
    for start in range(0, len(frames), pieces):
        parser.feed(frames[start : start + pieces])
    enveloped_count = inflow.enveloped
    count = inflow.run.count
    batch = inflow.run.seal(base_offset=0, leader_epoch=0, timestamp_ms=0) if count else b""
    return (
        batch,
        enveloped_count,
        inflow.take_replies(),
        inflow.enveloped,
        inflow.take_oversize(),
        inflow.take_keyless(),
        asked,
    )


@given(
    st.lists(
        st.builds(
            lambda payload, reply, block: (
                hmsg(block, payload, reply) if block else msg(payload, reply=reply)
            ),
            envelopes | cut_envelopes | damaged | rubbish | st.binary(max_size=80),
            st.sampled_from([b"", b"_INBOX.a", b"desk", b"acks"]),
            st.sampled_from([b"", b"NATS/1.0\r\nNats-A: b\r\nStreamlog-Key: k\r\n\r\n"]),
        ),
        max_size=6,
    ),
    st.integers(1, 80),
    st.booleans(),
)
@settings(max_examples=300, deadline=None)
def test_twins_gather_the_same(frames: list[bytes], pieces: int, keyed: bool) -> None:
    data = b"".join(frames)
    expected = gathered(PLAIN, data, len(data) or 1, keyed=keyed)
    assert gathered(PLAIN, data, pieces, keyed=keyed) == expected
    assert gathered(COMPILED, data, pieces, keyed=keyed) == expected
