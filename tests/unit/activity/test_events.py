import json
from typing import Any
from uuid import UUID

import pytest

from streamlog.acl.rules import Rule
from streamlog.activity.events import ActivityEvent, EventBuilder, Told, gap_event, runs, told_by
from streamlog.metadata.commands import AlterQuota, RemoveNode
from streamlog.metadata.image import records as facts
from streamlog.metadata.image.credential import StoredCredential
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.model import NodeId
from streamlog.raft.voters import Voter, VoterSet
from tests.controller_world import ids
from tests.unit.activity.activity_world import LoggedWorld

ONE, TWO = NodeId(1), NodeId(2)
LOG_ID = str(UUID(int=77))


HEAD = ("version", "log_id", "metadata_offset", "time_ms")


def told(world: LoggedWorld, since: int = 0) -> list[ActivityEvent]:
    return EventBuilder(MetadataImage("c"), since, LOG_ID).tell(world.log)


def last(world: LoggedWorld, count: int = 1) -> list[dict[str, Any]]:
    return [json.loads(event.value) for event in told(world)[-count:]]


def fields(said: dict[str, Any]) -> dict[str, Any]:
    """What is told beside the head."""
    return {k: v for k, v in said.items() if k not in HEAD}


def test_the_head_of_an_event() -> None:
    world = LoggedWorld(1)
    world.create("orders", description="früh")
    event, offset = told(world)[-2], world.image.offset - 2
    said = json.loads(event.value)
    assert list(said)[:8] == [
        "version", "kind", "log_id", "metadata_offset", "epoch", "time_ms", "stream", "stream_id",
    ]  # fmt: skip
    assert said["log_id"] == LOG_ID
    assert said["metadata_offset"] == event.metadata_offset == offset
    assert (said["version"], said["epoch"], said["time_ms"]) == (1, 1, 1_000 + offset)
    assert (event.key, event.subject) == (b"orders", b"activity.stream_created.orders")
    assert StreamConfig.of(**said["config"]) == world.image.stream("orders").config
    assert "früh".encode() in event.value


def test_a_stream_comes_changes_and_goes() -> None:
    world = LoggedWorld(1)
    world.create("orders")
    stream_id = str(world.image.stream("orders").stream_id)
    created, placed = last(world, 2)
    assert (created["kind"], created["stream_id"]) == ("stream_created", stream_id)
    assert fields(placed) == {
        "kind": "partition_created", "epoch": 1, "stream": "orders", "partition": 0, "leader": 1,
        "leader_epoch": 0, "replicas": [1], "isr": [1], "adding": [], "removing": [],
        "partition_epoch": 0,
    }  # fmt: skip
    world.update("orders", paused=True, subjects=("orders", "more"))
    assert fields(last(world)[0]) == {
        "kind": "stream_updated", "epoch": 1, "stream": "orders",
        "changed": {
            "subjects": {"old": ["orders"], "new": ["orders", "more"]},
            "paused": {"old": False, "new": True},
        },
    }  # fmt: skip
    world.apply(world_deletes("orders", world))
    gone = {"kind": "stream_deleted", "epoch": 1, "stream": "orders", "stream_id": stream_id}
    assert fields(last(world)[0]) == gone


def test_setting_that_is_left_out_of_records_at_its_default_is_told_of_when_it_is_taken_back() -> (
    None
):
    world = LoggedWorld(1)
    world.write(
        [
            facts.StreamCreated(
                stream_id=UUID(int=9),
                config=StreamConfig.of(name="t", max_consumers=3),
                created_ms=0,
            ),
            facts.StreamUpdated(config=StreamConfig.of(name="t")),
        ]
    )
    (said,) = last(world)
    assert said["changed"] == {"max_consumers": {"old": 3, "new": -1}}


def world_deletes(name: str, world: LoggedWorld) -> Any:
    from streamlog.metadata.controller import delete_stream

    return delete_stream(world.image, name)


def test_a_partition_is_told_by_what_matters_most() -> None:
    world = LoggedWorld(3)
    world.place(1, 2, name="s", min_isr=1)
    world.alter_isr(1)
    (said,) = last(world)
    assert (said["kind"], said["changed"]["isr"]) == ("isr_changed", {"old": [1, 2], "new": [1]})
    world.alter_isr(1, 2)
    world.elect(2)
    (said,) = last(world)
    assert (said["kind"], said["changed"]["leader"]) == ("leader_changed", {"old": 1, "new": 2})
    world.move(2, 3)
    (said,) = last(world)
    assert (said["kind"], said["adding"], said["removing"]) == ("replicas_changed", [3], [1])
    world.fence(2)
    world.fence(1)
    (said,) = (it for it in last(world, 2) if it["kind"] == "leader_changed")
    assert (said["leader"], said["changed"]["leader"]) == (None, {"old": 1, "new": None})


def test_a_second_leadership_of_the_same_node_is_a_change_of_leaders() -> None:
    world = LoggedWorld(1)
    world.create("s")
    world.fence(1)
    world.beat(1)
    assert [it["kind"] for it in last(world, 2)] == ["leader_changed", "node_fenced"]


def test_nodes_come_and_go() -> None:
    world = LoggedWorld(1)
    registered, let_in = last(world, 2)
    assert (registered["kind"], registered["node"]) == ("node_registered", 1)
    assert (registered["host"], registered["fenced"]) == ("host-1", True)
    assert "changed" not in registered
    assert fields(let_in) == {
        "kind": "node_fenced", "epoch": 1, "node": 1, "fenced": False, "stopping": False,
        "changed": {"fenced": {"old": True, "new": False}},
    }  # fmt: skip
    world.drain(1)
    (said,) = last(world)
    assert (said["kind"], said["draining"]) == ("node_draining", True)
    world.beat(1, full=True)
    (said,) = last(world)
    assert (said["kind"], said["full"]) == ("node_full", True)
    world.stop(1)
    (said,) = last(world)
    assert (said["fenced"], said["stopping"]) == (True, True)
    world.live.clear()
    world.register(1)
    (said,) = last(world)
    assert said["changed"].keys() == {"incarnation"}
    world.ask(RemoveNode(node_id=ONE))
    event = told(world)[-1]
    assert (event.key, event.subject) == (None, b"activity.node_removed.1")


def test_the_cluster_itself() -> None:
    world = LoggedWorld()
    voters = VoterSet.of([Voter(ONE, "h", 1, UUID(int=1)), Voter(TWO, "i", 2)])
    world.write([facts.QuorumLeader(node_id=ONE), facts.VotersChanged.of(voters)])
    world.write([facts.ProducerIdsAllocated(node_id=TWO, end=1_000)])
    world.ask(AlterQuota(client_id="c", values={"request_rate": 5.0}))
    elected, changed, allocated, quota = (fields(it) for it in last(world, 4))
    assert elected == {"kind": "controller_elected", "epoch": 1, "node": 1}
    assert [it["host"] for it in changed["voters"]] == ["h", "i"]
    assert allocated == {"kind": "producer_ids_allocated", "epoch": 1, "node": 2, "end": 1_000}
    assert (quota["kind"], quota["client_id"]) == ("quota_changed", "c")
    assert quota["changed"] == {"request_rate": {"old": None, "new": 5.0}}
    assert told(world)[-1].subject == b"activity.quota_changed"


def test_of_users_nothing_is_told_that_a_password_could_be_guessed_from() -> None:
    world = LoggedWorld()
    one, other = CREDENTIAL, CREDENTIAL.model_copy(update={"stored_key": "b3RoZXI="})
    world.write([facts.UserChanged(name="alice", credentials={"SCRAM-SHA-256": one})])
    both = {"SCRAM-SHA-256": other, "SCRAM-SHA-512": one}
    world.write([facts.UserChanged.model_validate({"name": "alice", "credentials": both})])
    world.write([facts.UserChanged(name="alice", credentials={})])
    added, changed, removed = (fields(it) for it in last(world, 3))
    assert (added["kind"], added["user"]) == ("user_added", "alice")
    assert added["mechanisms"] == ["SCRAM-SHA-256"]
    assert changed["kind"] == "user_changed"
    assert changed["passwords_changed"] == ["SCRAM-SHA-256"]
    assert removed == {"kind": "user_removed", "epoch": 1, "user": "alice"}
    said = b"".join(event.value for event in told(world))
    for secret in (one.salt, one.stored_key, one.server_key, other.stored_key):
        assert secret.encode() not in said


def test_every_kind_of_record_is_told() -> None:
    world = LoggedWorld(1)
    world.create("s", replicas=1)
    partition = world.partition()
    made: list[facts.MetadataRecord] = [
        facts.NodeRegistered(node_id=TWO, incarnation=UUID(int=1), host="h", port=1),
        facts.NodePlaced(node_id=TWO, machine=ONE),
        facts.NodeFenced(node_id=TWO, fenced=False),
        facts.NodeDraining(node_id=TWO, draining=True),
        facts.NodeFull(node_id=TWO, full=True),
        facts.NodeUnfit(node_id=TWO, unfit=("clock",)),
        facts.NodeStamped(node_id=TWO, stamp=UUID(int=2)),
        facts.NodeRemoved(node_id=TWO),
        facts.QuorumLeader(node_id=ONE),
        facts.VotersChanged(voters=()),
        facts.StreamCreated(
            stream_id=UUID(int=9), config=StreamConfig.of(name="t"), created_ms=0
        ),
        facts.StreamUpdated(config=StreamConfig.of(name="t", readonly=True)),
        facts.PartitionChanged(
            stream="s", partition=0, replicas=ids(1), leader=ONE, leader_epoch=7, isr=ids(1),
            partition_epoch=partition.partition_epoch + 1,
        ),
        facts.TierChanged(
            stream="s", partition=0, leader_epoch=7, manifest_version=1, log_start_offset=0, end_offset=9
        ),
        facts.StreamDeleted(name="t", stream_id=UUID(int=9)),
        facts.LeaderEpochsReserved(end=8),
        facts.MetadataLogBegun(log_id=UUID(int=3), begun_ms=1, first_producer_id=4),
        facts.ProducerIdsAllocated(node_id=ONE, end=5),
        facts.FeatureLevelChanged(level=1),
        AlterQuotaRecord,
        facts.UserChanged(name="alice", credentials={"SCRAM-SHA-256": CREDENTIAL}),
        facts.DecoySecretChosen(secret="c2VjcmV0"),
        facts.AccessRuleAdded(rule=RULE),
        facts.AccessRuleRemoved(rule=RULE),
    ]  # fmt: skip
    assert {type(record) for record in made} == set(facts._TYPES.values())
    offset = world.image.offset
    world.write(made)
    events = told(world, offset)
    assert [event.metadata_offset for event in events] == list(range(offset, offset + len(made)))


CREDENTIAL = StoredCredential(
    salt="c2FsdA==", iterations=8192, stored_key="c3RvcmVk", server_key="c2VydmVy"
)
RULE = Rule.of(
    permission="allow", principal="User:a", operation="read", resource_type="topic", name="s"
)
AlterQuotaRecord = facts.QuotaChanged.model_validate(
    {"client_id": None, "quota": {"request_rate": 1}}
)


def test_a_gap_covers_what_it_tells_of() -> None:
    event = gap_event(Told(LOG_ID, 10), 30, log_id=LOG_ID, epoch=2, time_ms=5)
    assert fields(json.loads(event.value)) == {
        "kind": "gap", "epoch": 2, "first_metadata_offset": 10
    }  # fmt: skip
    assert (event.subject, told_by(event.value)) == (b"activity.gap", Told(LOG_ID, 30))


def test_a_gap_between_two_logs_says_how_far_the_first_was_told() -> None:
    event = gap_event(Told(LOG_ID, 500), 30, log_id="other", epoch=2, time_ms=5)
    assert fields(json.loads(event.value)) == {
        "kind": "gap", "epoch": 2, "first_metadata_offset": 0, "previous_log_id": LOG_ID,
        "previous_metadata_offset": 499,
    }  # fmt: skip
    assert told_by(event.value) == Told("other", 30)


@pytest.mark.parametrize(
    "value",
    [b"", b"{", b"\xff", b"[]", b"{}", b'{"metadata_offset":null}', b'{"metadata_offset":-2}',
     b'{"metadata_offset":1,"log_id":1}',
     b'{"metadata_offset":true}'],
)  # fmt: skip
def test_what_is_no_event_is_told(value: bytes) -> None:
    with pytest.raises(ValueError):
        told_by(value)


def test_runs_are_bounded() -> None:
    events = [
        ActivityEvent(i, "k", "", None, b"x" * size) for i, size in enumerate((4, 4, 20, 1, 1))
    ]
    sizes = [[len(event.value) for event in run] for run in runs(events, 10)]
    assert sizes == [[4, 4], [20], [1, 1]]
    assert list(runs([], 10)) == []
