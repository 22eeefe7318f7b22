"""What a stream's consumers are limited to."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.errors import InvalidStreamConfig
from streamlog.metadata.stream.consumer_limits import ConsumerLimits
from streamlog.metadata.stream.settings_translation import from_jetstream, to_jetstream
from streamlog.metadata.stream.stream_config import StreamConfig

LIMITS = st.builds(
    ConsumerLimits, st.integers(0, (2**63 - 1) // 1_000_000), st.integers(-1, 2**63 - 1)
)


@given(LIMITS)
def test_text_says_all(limits: ConsumerLimits) -> None:
    assert ConsumerLimits.parse(str(limits)) == limits


@given(LIMITS)
def test_json_says_all(limits: ConsumerLimits) -> None:
    config = StreamConfig.of(name="s", consumer_limits=str(limits))
    told = to_jetstream(config)
    assert StreamConfig.of(**from_jetstream(told)) == config
    assert set(told["consumer_limits"]) == {
        name
        for name, value in zip(("inactive_threshold", "max_ack_pending"), limits, strict=True)
        if value
    }


def test_equal_limits_are_equal_settings() -> None:
    one, other = (
        StreamConfig.of(name="s", consumer_limits=text)
        for text in (
            "max_ack_pending=5, inactive_threshold=60s",
            "inactive_threshold=1m,max_ack_pending=5",
        )
    )
    assert one == other
    assert one.limits_of_consumers == ConsumerLimits(60_000, 5)


@pytest.mark.parametrize(
    "text",
    ["5", "max_ack_pending", "max_ack_pending=x", "max_ack_pending=-2", "inactive_threshold=-1s",
     "max_ack_pending=1,max_ack_pending=1", "max_batch=5", "inactive_threshold=9999999999999d"],
)  # fmt: skip
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(InvalidStreamConfig, match="consumer_limits"):
        StreamConfig.of(name="s", consumer_limits=text)


def test_what_is_less_than_nothing_limits_nothing() -> None:
    fields = {"name": "s", "consumer_limits": {"inactive_threshold": -1, "max_ack_pending": -7}}
    assert from_jetstream(fields)["consumer_limits"] == "max_ack_pending=-1"
