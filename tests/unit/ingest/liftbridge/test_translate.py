from streamlog.ingest.liftbridge import envelope
from streamlog.ingest.liftbridge.addresses import ReplyAddress, unpack
from streamlog.ingest.liftbridge.translate import (
    EnvelopeTranslator,
    TranslatedEnvelope,
    envelope_key,
    wish_of,
)
from tests import enveloped
from tests.enveloped import message, read_ack

OPENER = EnvelopeTranslator("orders")


def opened(body: bytes, *, block: bytes = b"", reply: bytes = b"") -> TranslatedEnvelope:
    found = OPENER.open(
        enveloped.envelope(body), block, b"o.1", reply, patterns=("x", "o.*"), now_ns=5
    )
    assert found is not None
    return found


def test_without_an_inbox_the_reply_subject_is_answered_as_ever() -> None:
    found = opened(message(b"v", headers={b"a": b"b"}), reply=b"_INBOX.x")
    assert found == TranslatedEnvelope(
        None, b"v", [(b"a", b"b")], b"NATS/1.0\r\na: b\r\n\r\n", b"_INBOX.x"
    )


def test_the_policy_is_a_wish_and_the_inbox_an_address() -> None:
    for policy, word in ((0, b"leader"), (1, b"all"), (2, b"none"), (9, b"all")):
        found = opened(message(b"v", inbox=b"acks", policy=policy), reply=b"_INBOX.x")
        assert found.block == b"NATS/1.0\r\nStreamlog-Ack: %b\r\n\r\n" % word
        assert wish_of(found.address) == b"Streamlog-Ack: %b\r\n" % word
        address = unpack(found.address)
        assert (address.reply, address.inbox) == (b"_INBOX.x", b"acks")
        ack = read_ack(address.ack)
        assert ack.get("policy", 0) == policy
        assert (ack["stream"], ack["partition_subject"], ack["subject"]) == (
            b"orders",
            b"o.*",
            b"o.1",
        )
    assert wish_of(b"_INBOX.x") == b""


def test_nobody_wants_an_answer() -> None:
    found = opened(message(b"v", policy=envelope.NONE))
    assert unpack(found.address)[:3] == (b"", b"", envelope.NONE)


def test_an_inbox_that_is_the_reply_subject_gets_one_answer() -> None:
    address = unpack(opened(message(b"v", inbox=b"acks"), reply=b"acks").address)
    assert (address.reply, address.inbox) == (b"", b"acks")


def test_headers_of_both_come_together_for_whoever_decides() -> None:
    headers = {
        b"Nats-Msg-Id": b"1",
        b"subject": b"lie",
        b"reply": b"lie",
        b"two\r\nlines": b"a",
        b"value": b"\r\nNats-Rollup: all",
        b"a:b": b"c",
    }
    found = opened(message(b"v", headers=headers), block=b"NATS/1.0\r\nX: y\r\n\r\n")
    assert found.block == b"NATS/1.0\r\nX: y\r\nNats-Msg-Id: 1\r\n\r\n"
    assert found.headers == [it for it in headers.items() if it[1] != b"lie"]


def test_look_alikes_are_not_opened() -> None:
    data = enveloped.envelope(message(b"v"), kind=1)
    assert OPENER.open(data, b"", b"o.1", b"", patterns=(), now_ns=0) is None
    assert envelope_key(data, b"header's") == b"header's"


def test_whose_key_counts() -> None:
    keyed = enveloped.envelope(message(b"v", key=b"k", headers={b"streamlog-KEY": b"h"}))
    assert envelope_key(keyed, b"nats's") == b"k"
    headed = enveloped.envelope(message(b"v", headers={b"streamlog-KEY": b"h"}))
    assert envelope_key(headed, b"nats's") == b"nats's"
    assert envelope_key(headed, None) == b"h"
    assert envelope_key(enveloped.envelope(b""), None) is None


def test_an_address_that_wants_nothing_says_nothing() -> None:
    assert list(ReplyAddress(b"", b"", envelope.NONE, b"").answers(b"{}", b"")) == []
