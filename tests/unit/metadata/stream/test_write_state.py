import pytest

from streamlog.errors import InvalidStreamConfig, StreamStandsStill
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.metadata.stream.write_state import (
    WriteState,
    check_may_be_cut,
    check_seal,
    check_takes_records,
    standstill,
)

PLAIN = StreamConfig.of(name="orders")
SEALED = StreamConfig.of(name="orders", sealed=True)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"paused": True}, WriteState.PAUSED),
        ({"paused": True, "readonly": True}, WriteState.READONLY),
        ({"readonly": True, "sealed": True}, WriteState.SEALED),
    ],
)
def test_the_strictest_reason_is_told(settings: dict[str, bool], why: WriteState) -> None:
    config = PLAIN.changed(**settings)
    assert standstill(config) is why
    with pytest.raises(StreamStandsStill, match=f"orders is {why.value}; nothing was stored"):
        check_takes_records(config)


def test_others_take_records() -> None:
    assert standstill(PLAIN) is None
    check_takes_records(PLAIN)


def test_only_a_sealed_stream_loses_nothing() -> None:
    check_may_be_cut(PLAIN.changed(readonly=True, paused=True))
    with pytest.raises(StreamStandsStill, match="nothing was removed"):
        check_may_be_cut(SEALED)
    assert PLAIN.is_retained and not SEALED.is_retained


def test_a_seal_comes_later_and_stays() -> None:
    check_seal(PLAIN, SEALED)
    check_seal(SEALED, SEALED.changed(description="d"))
    for old, new in ((None, SEALED), (SEALED, PLAIN)):
        with pytest.raises(InvalidStreamConfig, match="seal"):
            check_seal(old, new)
