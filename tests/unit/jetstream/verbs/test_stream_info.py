import uuid
from dataclasses import replace
from datetime import UTC, datetime

from immutables import Map
from nats.js.api import Base

from streamlog.control.leaders.partition_state import LeaderPartitionState
from streamlog.jetstream.verbs.stream_config import AUTO_PAUSED, config_from_json
from streamlog.jetstream.verbs.stream_info import NO_TIME, node_id_of, rfc3339, stream_info
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
    info = stream_info(STREAM, states, image=IMAGE, domain="d", now_ms=9)
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
    info = stream_info(leaderless, [None, None], image=IMAGE, domain="d", now_ms=9)
    assert (info["state"]["messages"], info["state"]["first_ts"]) == (0, NO_TIME)
    assert "leader" not in info["cluster"]
    assert [each["name"] for each in info["cluster"]["replicas"]] == ["node-1", "node-2", "node-3"]


def test_a_stream_is_auto_paused_where_all_its_partitions_are() -> None:
    paused = LeaderPartitionState(0, 1, 1, is_auto_paused=True)
    for states in ([paused, LeaderPartitionState(0, 1, 1)], [paused, None]):
        info = stream_info(STREAM, states, image=IMAGE, domain="d", now_ms=9)
        assert AUTO_PAUSED not in info["config"].get("metadata", {})
    info = stream_info(STREAM, [paused, paused], image=IMAGE, domain="d", now_ms=9)
    assert info["config"]["metadata"]["_streamlog.auto_paused"] == "true"
    assert config_from_json(info["config"]) == STREAM.config, (
        "what is told of it is none of its settings"
    )
    assert LeaderPartitionState.of_json(paused.json()) == paused
