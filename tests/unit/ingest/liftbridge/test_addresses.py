from streamlog.ingest.liftbridge import envelope
from streamlog.ingest.liftbridge.addresses import ReplyAddress, is_address, parted, unpack
from streamlog.ingest.pub_ack_format import pack_reply

BOTH = ReplyAddress(b"_INBOX.a", b"acks", envelope.ALL, b"ack")


def test_an_address_is_no_subject() -> None:
    packed = BOTH.packed()
    assert is_address(packed)
    assert not is_address(b"_INBOX.a")
    assert not is_address(b"")
    assert unpack(packed) == BOTH
    assert unpack(ReplyAddress(b"", b"", envelope.NONE, b"").packed()) == (
        b"",
        b"",
        envelope.NONE,
        b"",
    )


def test_answers() -> None:
    def answers(address: ReplyAddress, rest: bytes = b"!") -> list[tuple[bytes, bytes]]:
        return list(address.answers(b"{}", rest))

    assert answers(BOTH) == [(b"_INBOX.a", b"{}"), (b"acks", b"ack!")]
    assert answers(BOTH._replace(reply=b"")) == [(b"acks", b"ack!")]
    assert answers(BOTH._replace(inbox=b"")) == [(b"_INBOX.a", b"{}")]
    assert answers(BOTH._replace(policy=envelope.NONE)) == [(b"_INBOX.a", b"{}")]


def test_parted() -> None:
    subjects = [pack_reply(0, b"a"), pack_reply(2, b"b")]
    packed = subjects[0] + pack_reply(1, BOTH.packed()) + subjects[1]
    assert parted(packed) == (b"".join(subjects), [(1, BOTH)])
    assert parted(b"") == (b"", [])
