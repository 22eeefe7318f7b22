import json
import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from immutables import Map
from nats.js.api import Base

from streamlog.control.leaders.partition_state import LeaderPartitionState
from streamlog.jetstream.replies import encoded
from streamlog.jetstream.verbs.stream_config import (
    AUTO_PAUSED,
    ConfigTexts,
    config_from_json,
    config_to_json,
)
from streamlog.jetstream.verbs.stream_info import (
    NO_TIME,
    SingleReplicaTexts,
    _state_of_many,
    _state_of_one,
    node_id_of,
    rfc3339,
    stream_info,
)
from streamlog.metadata.image.metadata_image import (
    MetadataImage,
    NodeImage,
    PartitionImage,
    StreamImage,
)
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.model import NO_LEADER, NodeId

ONE, TWO, THREE = NodeId(1), NodeId(2), NodeId(3)


def test_times_end_in_z_and_keep_milliseconds() -> None:
    assert rfc3339(0) == "1970-01-01T00:00:00.000Z"
    assert rfc3339(1_795_254_123_007) == "2026-11-21T09:42:03.007Z"
    assert Base._parse_utc_iso(rfc3339(1)) == datetime(1970, 1, 1, 0, 0, 0, 1000, tzinfo=UTC)


@given(st.integers(-62_135_596_800_000, 253_402_300_799_999))
def test_a_time_is_as_the_standard_library_writes_it(time_ms: int) -> None:
    time = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=time_ms)
    assert rfc3339(time_ms) == time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def test_names_of_nodes() -> None:
    assert [node_id_of(name) for name in ("node-2", "2", "node-", "two", "-2", "\u0662")] == [
        2, 2, None, None, None, None,
    ]  # fmt: skip


NODES = {
    node_id: NodeImage(node_id, uuid.uuid4(), "host", 9092, None, fenced=node_id == THREE)
    for node_id in (ONE, TWO, THREE)
}
IMAGE = MetadataImage("c1", nodes=Map(NODES))
PARTITION = PartitionImage((ONE, TWO, THREE), ONE, 0, (ONE, TWO), 0)
STREAM = StreamImage(StreamConfig.of(name="s", partitions=2), uuid.uuid4(), 5, (PARTITION,) * 2)


def test_partitions_add_up_and_replicas_are_those_of_the_first() -> None:
    states = [
        LeaderPartitionState(2, 10, 100, 1000, 3000, {TWO: 0, THREE: 4}),
        LeaderPartitionState(0, 30, 50, 2000, 2500),
    ]
    info = stream_info(STREAM, states, image=IMAGE, domain="d", now=rfc3339(9), consumer_count=3)
    state = info["state"]
    assert (state["messages"], state["bytes"]) == (38, 150)
    assert (state["first_seq"], state["last_seq"]) == (1, 30)
    assert (state["first_ts"], state["last_ts"]) == (rfc3339(1000), rfc3339(3000))
    assert info["cluster"] == {
        "name": "c1",
        "raft_group": "s-0",
        "leader": "node-1",
        "replicas": [
            {"name": "node-2", "peer": "node-2", "current": True, "active": 0},
            {"name": "node-3", "peer": "node-3", "current": False, "active": 0,
             "offline": True, "lag": 4},
        ],
    }  # fmt: skip


def test_what_nobody_could_tell_is_left_out() -> None:
    leaderless = replace(STREAM, partitions=(replace(PARTITION, leader=NO_LEADER),) * 2)
    info = stream_info(
        leaderless, [None, None], image=IMAGE, domain="d", now=rfc3339(9), consumer_count=3
    )
    assert (info["state"]["messages"], info["state"]["first_ts"]) == (0, NO_TIME)
    assert "leader" not in info["cluster"]
    assert [each["name"] for each in info["cluster"]["replicas"]] == ["node-1", "node-2", "node-3"]


def test_a_stream_is_auto_paused_where_all_its_partitions_are() -> None:
    paused = LeaderPartitionState(0, 1, 1, is_auto_paused=True)
    for states in ([paused, LeaderPartitionState(0, 1, 1)], [paused, None]):
        info = stream_info(
            STREAM, states, image=IMAGE, domain="d", now=rfc3339(9), consumer_count=3
        )
        assert AUTO_PAUSED not in info["config"].get("metadata", {})
    info = stream_info(
        STREAM, [paused, paused], image=IMAGE, domain="d", now=rfc3339(9), consumer_count=3
    )
    assert info["config"]["metadata"]["_streamlog.auto_paused"] == "true"
    assert config_from_json(info["config"]) == STREAM.config, (
        "what is told of it is none of its settings"
    )
    assert LeaderPartitionState.of_json(paused.json()) == paused


times = st.none() | st.integers(0, 2**40)


@st.composite
def partition_states(draw: st.DrawFn) -> LeaderPartitionState:
    start = draw(st.integers(0, 5))
    erased = draw(st.none() | st.lists(st.integers(0, 9), max_size=3))
    trailing = draw(st.integers(0, 3))
    return LeaderPartitionState(
        start,
        start + draw(st.integers(0, 9)) + trailing,
        100,
        draw(times),
        draw(times),
        erased_count=len(erased or ()),
        erased=erased,
        trailing_erasures=trailing,
    )


@given(partition_states())
def test_a_state_of_one_partition_is_a_sum_of_one(state: LeaderPartitionState) -> None:
    assert _state_of_one(state) == _state_of_many([state])


def test_a_configuration_as_text_is_told_as_it_is() -> None:
    texts, config = ConfigTexts(), StreamConfig.of(name="s", description="\u20ac")
    told = texts.text_of(config)
    assert texts.text_of(config).text is told.text
    assert json.loads(encoded({"config": told, "more": "half: \ud800"}))["config"] == (
        config_to_json(config)
    )
    assert json.loads(encoded({"config": told}))["config"] == config_to_json(config)
    changed = config.changed(description="another")
    assert (
        json.loads(encoded({"config": texts.text_of(changed)}))["config"]["description"]
        == "another"
    )


def test_a_stream_that_is_paused_says_so_in_a_list_too() -> None:
    states = [LeaderPartitionState(0, 0, 0, is_auto_paused=True)] * 2
    told = ConfigTexts().text_of(STREAM.config)
    info = stream_info(STREAM, states, image=IMAGE, domain="d", now=rfc3339(9), config=told)
    plain = config_to_json(STREAM.config)
    assert info["config"] == {**plain, "metadata": {**plain["metadata"], AUTO_PAUSED: "true"}}


SINGLE = replace(
    STREAM,
    partitions=(
        PartitionImage(replicas=(ONE,), leader=ONE, leader_epoch=1, partition_epoch=1, isr=(ONE,)),
    ),
)
"""One partition with one replica."""


@given(partition_states(), st.booleans())
def test_an_info_as_text_is_told_as_it_is(state: LeaderPartitionState, is_known: bool) -> None:
    texts = SingleReplicaTexts(domain="d")
    if is_known:
        assert texts.keep(SINGLE, IMAGE, config_to_json(SINGLE.config))
    told = texts.of(SINGLE, state, IMAGE, rfc3339(9), 3)
    plain = stream_info(SINGLE, [state], image=IMAGE, domain="d", now=rfc3339(9), consumer_count=3)
    assert json.loads(encoded({"streams": [told]}))["streams"] == [plain]


def test_an_info_as_text_is_that_of_the_stream_as_it_is_now() -> None:
    texts, state = SingleReplicaTexts(domain="d"), LeaderPartitionState(0, 1, 1)
    texts.keep(SINGLE, IMAGE)
    changed = replace(SINGLE, config=SINGLE.config.changed(description="another"))
    told = texts.of(changed, state, IMAGE, rfc3339(9), 3)
    assert told is not None
    assert json.loads(told.text)["config"]["description"] == "another"


def test_other_infos_are_not_kept_as_text() -> None:
    texts, state = SingleReplicaTexts(domain="d"), LeaderPartitionState(0, 1, 1)
    assert texts.of(SINGLE, None, IMAGE, rfc3339(9), 3) is None, "its leader does not answer"
    assert texts.of(SINGLE, state._replace(is_auto_paused=True), IMAGE, rfc3339(9), 3) is None
    assert texts.of(STREAM, state, IMAGE, rfc3339(9), 3) is None, "several partitions"
    (one,) = SINGLE.partitions
    for partition in (
        replace(one, replicas=(ONE, TWO), isr=(ONE, TWO)),
        replace(one, leader=NO_LEADER),
    ):
        stream = replace(SINGLE, partitions=(partition,))
        assert texts.of(stream, state, IMAGE, rfc3339(9), 3) is None


def test_texts_of_infos_are_dropped_when_they_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamlog.jetstream.verbs.stream_config.KEPT_TEXTS_BYTES_MAX", 3_000)
    texts, state = SingleReplicaTexts(domain="d"), LeaderPartitionState(0, 1, 1)
    for number in range(20):
        config = StreamConfig.of(name=f"s{number}")
        told = texts.of(replace(SINGLE, config=config), state, IMAGE, rfc3339(9), 3)
        assert told is not None
        assert json.loads(told.text)["config"]["name"] == config.name
        assert sum(map(len, texts._heads._texts.values())) <= 3_000
