import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.jetstream.consumers.consumer_config import ConsumerConfig
from streamlog.jetstream.consumers.pull_request import PullRefused, PullRequest, read_pull

CONFIG = ConsumerConfig(name="c", max_waiting=512)
FIELDS = (
    "expires", "batch", "max_bytes", "no_wait", "idle_heartbeat", "group", "min_pending", "id",
    "min_ack_pending", "priority",
)  # fmt: skip


def test_a_request_has_what_it_asks_for() -> None:
    body = {
        "batch": 5, "max_bytes": 6, "expires": 7_000_000_000, "idle_heartbeat": 1_000_000_001,
        "no_wait": True, "group": "a", "min_pending": 8, "min_ack_pending": 9, "priority": 3,
    }  # fmt: skip
    config = ConsumerConfig(name="c", priority_policy="overflow", priority_groups=("a",))
    assert read_pull(json.dumps(body).encode(), config) == PullRequest(
        batch=5,
        max_bytes=6,
        expires_ms=7_000,
        idle_heartbeat_ms=1_001,
        no_wait=True,
        group="a",
        min_pending=8,
        min_ack_pending=9,
        priority=3,
    )


@pytest.mark.parametrize(
    ("body", "batch"),
    [(b"", 1), (b"5", 5), (b" 5 ", 5), (b"x", 1), (b"0", 1), (b"{}", 1), (b'{"batch":-1}', 1)],
)
def test_a_request_is_for_one_message_at_least(body: bytes, batch: int) -> None:
    assert read_pull(body, CONFIG) == PullRequest(batch)


def test_a_pin_is_of_its_client() -> None:
    config = ConsumerConfig(name="c", priority_policy="pinned_client", priority_groups=("a",))
    assert read_pull(b'{"group": "a", "id": "x"}', config).id == "x"


_values: Any = st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.lists(st.none())


@given(
    st.binary(max_size=20)
    | st.dictionaries(st.sampled_from(FIELDS), _values).map(lambda it: json.dumps(it).encode()),
    st.sampled_from(["none", "overflow", "pinned_client", "prioritized"]),
)
def test_whatever_a_body_holds_it_is_taken_or_refused(body: bytes, policy: str) -> None:
    config = ConsumerConfig(name="c", max_batch=10, priority_policy=policy, priority_groups=("a",))
    try:
        request = read_pull(body, config)
    except PullRefused as refused:
        assert refused.code in (400, 409)
        assert "\r" not in refused.description
        assert "\n" not in refused.description
        return
    assert 1 <= request.batch <= 10
    assert min(request.expires_ms, request.max_bytes, request.idle_heartbeat_ms) >= 0
