import pytest

from streamlog.errors import NodeUnreachable, Overloaded, RecordTooLarge, StreamNotFound
from streamlog.nats_tools.ack_reader import TAIL_BYTES, AckReader


def ack(number: int) -> bytes:
    body = b'{"stream":"orders","seq":%d}' % (number + 1)
    return b"MSG _INBOX.x.%d 1 %d\r\n%s\r\n" % (number, len(body), body)


ACKS = b"".join(map(ack, range(200)))
INFO = b'INFO {"server_id":"x","limits":{"a":{}}}\r\n'
REFUSED = (
    b'MSG _INBOX.x.7 1 100\r\n{"error":{"code":%d,"err_code":%d,"description":"no"},'
    b'"stream":"orders","seq":0}\r\n'
)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50, 333, TAIL_BYTES, TAIL_BYTES + 1, len(ACKS)])
def test_pieces_of_any_size_count_the_same(size: int) -> None:
    reader, data, numbers = AckReader("orders"), INFO + ACKS + b"PING\r\n", []
    for i in range(0, len(data), size):
        numbers += reader.numbers(data[i : i + size])
    assert numbers == list(range(200))
    assert reader.count == 200
    assert reader.last_sequence == 200


@pytest.mark.parametrize("size", [1, 5, 64, 4096])
@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (REFUSED % (400, 10054), RecordTooLarge),
        (REFUSED % (429, 10167), Overloaded),
        (b"HMSG _INBOX.x.1 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n", StreamNotFound),
        (b"-ERR 'Authorization Violation'\r\n", NodeUnreachable),
    ],
)
def test_the_first_refusal_is_raised(size: int, said: bytes, kind: type[Exception]) -> None:
    reader, data = AckReader("orders"), ACKS + said + ACKS

    def feed() -> None:
        for i in range(0, len(data), size):
            reader.feed(data[i : i + size])

    with pytest.raises(kind):
        feed()


def test_a_stream_may_be_named_like_an_error() -> None:
    reader = AckReader("error")
    body = b'{"stream":"error","seq":1}'
    reader.feed(b"MSG _INBOX.x.0 1 %d\r\n%s\r\n" % (len(body), body))
    assert reader.count == 1


def test_no_ack_has_no_sequence() -> None:
    reader = AckReader("orders")
    reader.feed(INFO)
    assert (reader.count, reader.last_sequence) == (0, None)
