from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.jetstream.consumers.consumer_config import (
    FILTERS_MAX,
    ConsumerConfig,
    CreateRequest,
    check_honoured,
    check_queue,
    check_update,
    decided,
    is_same,
    pause_until,
    read_create,
)
from streamlog.jetstream.errors import ApiRefused
from streamlog.jetstream.requests.request_schemas import CONSUMER_CREATE
from streamlog.jetstream.requests.schema import WrongType
from streamlog.metadata.stream.stream_config import StreamConfig

STREAM = StreamConfig.of(name="orders", subjects=["orders.*"], partitions=3)
SECOND = 10**9

_names = st.text(alphabet="abcXYZ09_-", max_size=5)
_texts = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=5)
_ms = st.integers(0, 10**12)
_counts = st.integers(0, 2**63 - 1)
_times = st.none() | st.integers(-62_135_596_800_000, 253_402_300_799_999)
_lists = st.lists(_names, max_size=3).map(tuple)
configs = st.builds(
    ConsumerConfig,
    durable_name=_names,
    name=_names,
    description=_texts,
    deliver_policy=st.sampled_from(
        ["all", "last", "new", "by_start_sequence", "by_start_time", "last_per_subject"]
    ),
    opt_start_seq=st.integers(0, 2**64 - 1),
    opt_start_time_ms=_times,
    ack_policy=st.sampled_from(["none", "all", "explicit", "flow_control"]),
    ack_wait_ms=_ms,
    max_deliver=st.sampled_from([-1, 1, 5]),
    backoff_ms=st.lists(_ms, max_size=3).map(tuple),
    filter_subject=_names,
    filter_subjects=_lists,
    replay_policy=st.sampled_from(["instant", "original"]),
    rate_limit_bps=_counts,
    sample_freq=st.sampled_from(["", "5", "100%"]),
    max_waiting=_counts,
    max_ack_pending=st.integers(-1, 5),
    flow_control=st.booleans(),
    headers_only=st.booleans(),
    max_batch=_counts,
    max_expires_ms=_ms,
    max_bytes=_counts,
    deliver_subject=_names,
    deliver_group=_names,
    idle_heartbeat_ms=_ms,
    inactive_threshold_ms=_ms,
    num_replicas=st.integers(0, 5),
    mem_storage=st.booleans(),
    direct=st.booleans(),
    sourcing=st.booleans(),
    metadata=st.dictionaries(_names, _texts, max_size=2),
    pause_until_ms=_times,
    priority_groups=_lists,
    priority_policy=st.sampled_from(["none", "overflow", "pinned_client", "prioritized"]),
    priority_timeout_ms=_ms,
)


@given(configs)
def test_a_configuration_reads_what_it_wrote(config: ConsumerConfig) -> None:
    assert ConsumerConfig.of_json(config.json()) == config


def test_an_empty_configuration_tells_its_policies_alone() -> None:
    assert ConsumerConfig(name="c").json() == {
        "name": "c",
        "deliver_policy": "all",
        "ack_policy": "none",
        "max_deliver": -1,
        "replay_policy": "instant",
        "num_replicas": 0,
    }


_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | _texts | st.just("a.>"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_texts, inner, max_size=3),
    max_leaves=5,
)
_fields = st.dictionaries(
    st.sampled_from([
        "name", "deliver_policy", "ack_policy", "max_deliver", "replay_policy", "num_replicas",
        "durable_name", "description", "opt_start_seq", "opt_start_time", "ack_wait", "backoff",
        "filter_subject", "filter_subjects", "sample_freq", "max_waiting", "deliver_subject",
        "idle_heartbeat", "metadata", "pause_until", "priority_groups", "priority_policy",
    ]),
    _values | st.sampled_from(
        ["all", "explicit", "overflow", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59.9999Z"]
    ),
    max_size=6,
)  # fmt: skip


@given(_fields, st.booleans(), _names, st.booleans())
def test_whatever_a_request_holds_it_is_taken_or_refused(
    config: dict[str, Any], is_pedantic: bool, name: str, is_durable_form: bool
) -> None:
    request = {"stream_name": "orders", "config": config, "pedantic": is_pedantic}
    try:
        read = read_create(
            CONSUMER_CREATE.read(request),
            stream=STREAM,
            subject_consumer=name,
            is_durable_form=is_durable_form,
        )
    except (ApiRefused, WrongType):
        return
    assert ConsumerConfig.of_json(read.config.json()) == read.config


def create(action: str = "", **config: Any) -> CreateRequest:
    fields: Mapping[str, Any] = {"stream_name": "orders", "config": config, "action": action}
    return read_create(CONSUMER_CREATE.read(fields), stream=STREAM, subject_consumer="c")


def refusal(**config: Any) -> str:
    with pytest.raises(ApiRefused) as refused:
        create(**config)
    return refused.value.error.description


def test_a_part_of_a_millisecond_counts_as_one() -> None:
    config = create(ack_policy="explicit", ack_wait=1, inactive_threshold=1_000_001).config
    assert (config.ack_wait_ms, config.inactive_threshold_ms) == (1, 2)


def test_a_deliver_subject_may_be_none_of_any_partition() -> None:
    assert "cycle" in refusal(deliver_subject="orders.new")
    assert "cycle" in refusal(deliver_subject="orders.new.2")
    assert create(deliver_subject="orders.new.3").config.is_push


def test_replicas_are_at_most_those_of_the_stream() -> None:
    assert refusal(num_replicas=2) == "consumer config replica count exceeds parent stream"


@pytest.mark.parametrize("subject", ["a\x00b", "a\x7f", "x" * 1025, "a*", "größe\u3000"])
def test_subjects_that_no_line_could_hold_are_refused(subject: str) -> None:
    assert "invalid" in refusal(deliver_subject=subject)
    assert "subject" in refusal(filter_subjects=[subject])


def test_names_with_control_characters_are_refused() -> None:
    with pytest.raises(ApiRefused, match="name can not contain"):
        read_create({"stream_name": "orders", "config": {"name": "a\x01"}}, stream=STREAM)


def test_filters_are_limited() -> None:
    most = [f"orders.{number}" for number in range(FILTERS_MAX)]
    assert create(filter_subjects=most).config.filters == tuple(most)
    assert "at most" in refusal(filter_subjects=[*most, "orders.more"])
    assert "too many wildcards" in refusal(filter_subjects=[f"{it}.*" for it in most])


def test_filters_are_one_or_several() -> None:
    assert create().config.filters == ()
    assert create(filter_subject="a").config.filters == ("a",)
    assert create(filter_subjects=["a", "b"]).config.filters == ("a", "b")


def test_a_pause_survives_an_update() -> None:
    old = replace(create().config, pause_until_ms=99)
    request = create(description="d", pause_until="2099-01-01T00:00:00Z")
    assert decided(old, request).pause_until_ms == 99
    assert is_same(old, create().config)


def test_an_update_needs_a_consumer() -> None:
    with pytest.raises(ApiRefused, match="does not exist"):
        decided(None, create("update"))
    assert decided(None, create("create")) == create().config


def test_a_durable_consumer_is_not_abandoned_for_a_client_that_does_not_call_it_durable() -> None:
    durable, ephemeral = create(durable_name="c"), create()
    assert ephemeral.config.inactive_threshold_ms == 5_000
    kept = decided(durable.config, ephemeral)
    assert kept.inactive_threshold_ms == 0
    assert decided(kept, ephemeral) == decided(kept, create("create")) == kept
    assert decided(ephemeral.config, durable).inactive_threshold_ms == 0
    asked = create(inactive_threshold=7 * SECOND)
    assert decided(durable.config, asked).inactive_threshold_ms == 7_000


MIRROR: dict[str, Any] = {
    "deliver_subject": "inbox.m", "idle_heartbeat": SECOND, "flow_control": True, "direct": True,
    "sourcing": True, "max_deliver": 1,
}  # fmt: skip


def test_consumers_of_a_mirror_get_names_of_their_own() -> None:
    assert not create(**MIRROR).config.name
    assert create(**{**MIRROR, "sourcing": False}).config.name == "c"


def test_what_is_not_served_is_refused_by_name() -> None:
    check_honoured(create(**MIRROR).config, 2)
    flow = create(ack_policy="flow_control", deliver_subject="p").config
    check_honoured(flow, 1)
    with pytest.raises(ApiRefused, match="must have one partition, not 2"):
        check_honoured(flow, 2)
    with pytest.raises(ApiRefused, match="sourcing"):
        check_honoured(create(sourcing=True).config, 1)


@pytest.mark.parametrize("retention", ["interest", "workqueue"])
def test_consumer_of_a_source_acknowledges_where_that_removes_messages(retention: str) -> None:
    stream = StreamConfig.of(name="s", retention=retention)
    fields = {"stream_name": "s", "config": {**MIRROR, "deliver_policy": "by_start_sequence",
                                             "opt_start_seq": 7, "max_deliver": 1}}  # fmt: skip
    made = read_create(fields, stream=stream, subject_consumer="JS_SRC_x")
    config = made.config
    assert (config.name, config.durable_name, config.direct) == ("JS_SRC_x", "JS_SRC_x", False)
    assert (config.ack_policy, config.max_deliver, config.max_ack_pending) == (
        "flow_control",
        -1,
        1_000,
    )
    check_honoured(config, 1)
    check_queue(config, [])
    with pytest.raises(ApiRefused) as refused:
        check_queue(config, [ConsumerConfig(name="worker", ack_policy="explicit")])
    assert refused.value.error.err_code == 10099
    again = made._replace(config=replace(config, opt_start_seq=9, deliver_subject="m.2"))
    assert decided(config, again).opt_start_seq == 7
    assert decided(config, again).deliver_subject == "m.2"


def test_work_queue_takes_acknowledgements_by_flow_control() -> None:
    flow = ConsumerConfig(name="f", ack_policy="flow_control", deliver_subject="p")
    check_queue(flow, [])
    with pytest.raises(ApiRefused) as refused:
        check_queue(flow, [ConsumerConfig(name="worker", ack_policy="explicit")])
    assert refused.value.error.err_code == 10099


def test_a_lasting_field_may_not_change() -> None:
    with pytest.raises(ApiRefused, match="start time can not be updated"):
        check_update(ConsumerConfig(), ConsumerConfig(opt_start_time_ms=0))
    check_update(ConsumerConfig(), ConsumerConfig(description="d", ack_wait_ms=5))


def test_a_pause_until_no_time_goes_on() -> None:
    assert pause_until({}) is None
    assert pause_until({"pause_until": -62_135_596_800_000}) is None
    assert pause_until({"pause_until": 5}) == 5


@pytest.mark.parametrize(
    ("filters", "others", "err_code"),
    [
        ((), [], 0),
        ((), [("a",)], 10099),
        (("a",), [()], 10100),
        (("a",), [("b",), ("a",)], 10100),
        (("a", "c.*"), [("b", "c.d")], 10100),
        (("c.d",), [("c.>",)], 10100),
        (("c.d", "e"), [("c.e", "*.d.e"), ("c",)], 0),
    ],
)
def test_no_two_consumers_of_a_work_queue_want_the_same_message(
    filters: tuple[str, ...], others: list[tuple[str, ...]], err_code: int
) -> None:
    config = ConsumerConfig(ack_policy="explicit", filter_subjects=filters)
    known = [ConsumerConfig(ack_policy="explicit", filter_subjects=it) for it in others]
    if not err_code:
        check_queue(config, known)
        return
    for is_new in (True, False):
        with pytest.raises(ApiRefused) as raised:
            check_queue(config, known, is_new=is_new)
        assert raised.value.error.err_code == err_code
