import pytest

from streamlog.ledger.core.entry import (
    BLOCK_HEADER,
    CONFIGURATION,
    KIND_HEADER,
    TIME_TO_CUT,
    Configuration,
    LaterConfiguration,
    Malformed,
    Message,
    TimeToCut,
    configuration,
    marked,
    time_to_cut,
)
from tests.ledger_stream import channel, placed


def test_a_record_is_ordinary_unless_it_says_otherwise() -> None:
    headers = (("subject", b"flights"), ("streamlog-ledger", b"configuration"))
    assert marked(placed(Message(None, b"x", headers), 0)) is None


def test_what_is_made_is_read() -> None:
    assert marked(placed(time_to_cut(12, "n1"), 0)) == TimeToCut(12)
    assert marked(placed(configuration(channel()), 0)) == Configuration(channel())


def test_the_first_header_counts() -> None:
    message = time_to_cut(3, "n1")
    doubled = message._replace(
        headers=(*message.headers, (KIND_HEADER, CONFIGURATION), (BLOCK_HEADER, b"4"))
    )
    assert marked(placed(doubled, 0)) == TimeToCut(3)


@pytest.mark.parametrize("number", [b"", b"-1", b"+1", b"01", b" 1", b"1.0", b"x", b"9" * 20, None])
def test_a_marker_without_a_number_is_malformed(number: bytes | None) -> None:
    message = Message(None, None, ((KIND_HEADER, TIME_TO_CUT), (BLOCK_HEADER, number)))
    assert isinstance(marked(placed(message, 0)), Malformed)


@pytest.mark.parametrize("kind", [None, b"", b"Configuration", b"\xff"])
def test_an_unknown_kind_is_malformed(kind: bytes | None) -> None:
    message = Message(None, channel().encode(), ((KIND_HEADER, kind),))
    assert isinstance(marked(placed(message, 0)), Malformed)


def test_a_configuration_of_a_later_format_is_told_apart() -> None:
    text = channel(sequence=4).encode().replace(b'"format":1', b'"format":3')
    message = Message(None, text, ((KIND_HEADER, CONFIGURATION),))
    assert marked(placed(message, 0)) == LaterConfiguration(3, 4)
    broken = message._replace(value=b"{}")
    assert isinstance(marked(placed(broken, 0)), Malformed)
