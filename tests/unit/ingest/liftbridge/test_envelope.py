import pytest

from streamlog.ingest.liftbridge import envelope
from streamlog.ingest.liftbridge.envelope import Envelope, decode
from tests import enveloped
from tests.enveloped import message, number, read_ack, text

FULL = message(
    b"value",
    key=b"key",
    headers={b"colour": b"red", b"empty": b""},
    inbox=b"acks.7",
    correlation_id=b"c-1",
    policy=envelope.ALL,
)
OPENED = Envelope(
    key=b"key",
    value=b"value",
    headers=((b"colour", b"red"), (b"empty", b"")),
    ack_inbox=b"acks.7",
    correlation_id=b"c-1",
    ack_policy=envelope.ALL,
)


def test_byte_by_byte() -> None:
    """The layout of the published protocol, written out."""
    body = bytes.fromhex("1a0568656c6c6f")  # field 3, five bytes: hello
    assert decode(bytes.fromhex("b90e43b4 00 08 00 00") + body) == Envelope(value=b"hello")
    checksum = bytes.fromhex("3b88a51f")
    assert enveloped.crc32c(b"123456789") == 0xE3069283, "the value that everybody tests it with"
    assert enveloped.crc32c(body) == int.from_bytes(checksum, "big")
    assert decode(bytes.fromhex("b90e43b4 00 0c 01 00") + checksum + body) == Envelope(
        value=b"hello"
    )


@pytest.mark.parametrize("checked", [False, True])
def test_every_field(checked: bool) -> None:
    assert decode(enveloped.envelope(FULL, checked=checked)) == OPENED


def test_nothing_in_it() -> None:
    assert decode(enveloped.envelope(b"")) == Envelope()


def test_fields_that_only_a_server_writes_do_not_matter() -> None:
    others = number(1, -1) + number(4, 5) + text(5, b"s") + number(6, 3) + text(7, b"a.b")
    assert decode(enveloped.envelope(others + FULL + text(8, b"r"))) == OPENED


def test_the_last_of_a_repeated_field_counts() -> None:
    entry = text(9, text(1, b"colour") + text(2, b"blue"))
    found = decode(enveloped.envelope(FULL + text(2, b"other") + entry + number(12, -1)))
    assert found == OPENED._replace(
        key=b"other", headers=((b"colour", b"blue"), (b"empty", b"")), ack_policy=-1
    )


def test_a_longer_header_without_a_checksum() -> None:
    assert decode(enveloped.MAGIC + bytes((0, 10, 0, 0)) + b"??" + FULL) == OPENED


@pytest.mark.parametrize(
    "data",
    [
        b"",
        enveloped.MAGIC,
        b"\xb9\x0e\x43\xb5" + bytes((0, 8, 0, 0)) + FULL,
        enveloped.MAGIC + bytes((1, 8, 0, 0)) + FULL,
        enveloped.MAGIC + bytes((0, 7, 0, 0)) + FULL,
        enveloped.MAGIC + bytes((0, 9, 0, 0)),
        enveloped.MAGIC + bytes((0, 8, 1, 0)) + FULL,
        enveloped.MAGIC + bytes((0, 13, 1, 0)) + b"\0" * 5 + FULL,
        enveloped.MAGIC + bytes((0, 12, 1, 0)) + b"\0" * 4 + FULL,
        *(enveloped.envelope(FULL, kind=kind) for kind in range(1, 16)),
        enveloped.envelope(FULL + b"\x12"),
        enveloped.envelope(FULL + text(7, b"\xff")),
        enveloped.envelope(FULL + text(9, text(1, b"\xff"))),
        enveloped.envelope(FULL + text(9, b"\x0a")),
    ],
    ids=range(28),
)
def test_what_only_looks_like_one(data: bytes) -> None:
    assert decode(data) is None


@pytest.mark.parametrize(
    "inbox",
    [
        b"two words",
        b"line\r\nPUB x 0",
        b"a..b",
        b".a",
        b"a.",
        b"a.*",
        b">",
        b"nul\0",
        b"del\x7f",
        b"long." * 205,
    ],
)
def test_an_inbox_that_cannot_be_published_to(inbox: bytes) -> None:
    assert decode(enveloped.envelope(message(b"v", inbox=inbox))) is None


def test_a_correlation_id_that_no_ack_could_carry() -> None:
    assert decode(enveloped.envelope(message(b"v", correlation_id=b"c" * 4096))) is not None
    assert decode(enveloped.envelope(message(b"v", correlation_id=b"c" * 4097))) is None


def test_an_ack() -> None:
    begun = envelope.ack_begun(
        OPENED, stream=b"orders", partition_subject=b"o.*", subject=b"o.1", received_ns=5
    )
    told = {
        "stream": b"orders",
        "partition_subject": b"o.*",
        "subject": b"o.1",
        "inbox": b"acks.7",
        "correlation_id": b"c-1",
        "policy": 1,
        "received_ns": 5,
    }
    assert read_ack(begun + envelope.stored(300, 7)) == {**told, "offset": 300, "committed_ns": 7}
    assert read_ack(begun + envelope.refused(envelope.TOO_LARGE)) == {**told, "error": 3}
