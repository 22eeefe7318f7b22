"""Records are enough: replayed, encoded, or squeezed into a snapshot, they give the live image."""

from uuid import UUID

from hypothesis import example, given, settings
from hypothesis import strategies as st

from streamlog.errors import InvalidRequest
from streamlog.metadata import controller
from streamlog.metadata.commands import AlterQuota, AlterUser
from streamlog.metadata.controller import Decision
from streamlog.metadata.controller.bootstrap import LEADER_EPOCHS_SINCE_MS, begin_log
from streamlog.metadata.controller.clients import alter_user
from streamlog.metadata.image.credential import StoredCredential
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.image.quota import QUOTA_KEYS
from streamlog.metadata.image.records import MetadataRecord, decode_record, encode_record
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.model import NodeId
from tests.node_registration import started

NAMES = st.sampled_from(["a", "b", "c"])
NODES = st.integers(1, 3).map(NodeId)

configs = st.builds(
    StreamConfig.of,
    name=NAMES,
    partitions=st.integers(1, 3),
    replicas=st.integers(1, 3),
    retention_ms=st.sampled_from([-1, 1_000]),
)
A = StreamConfig.of(name="a")
quotas = st.builds(
    AlterQuota,
    client_id=st.none() | NAMES,
    values=st.dictionaries(st.sampled_from(QUOTA_KEYS), st.none() | st.integers(1, 3)),
)
credentials = st.sampled_from(["AAAA", "BBBB"]).map(
    lambda key: StoredCredential(
        salt=key, iterations=8192, stored_key=key * 10 + "AAA=", server_key=key * 10 + "AAA="
    )
)
users = st.builds(
    AlterUser,
    name=NAMES,
    changed=st.dictionaries(st.just("SCRAM-SHA-256"), credentials),
    removed=st.sampled_from([(), ("SCRAM-SHA-256",)]),
    decoy_secret=st.sampled_from(["AAAA", "BBBB"]),
)
requests = st.lists(
    st.one_of(
        st.tuples(st.just("create"), configs),
        st.tuples(st.just("update"), configs),
        st.tuples(st.just("delete"), NAMES),
        st.tuples(st.just("start"), NODES),
        st.tuples(st.just("quota"), quotas),
        st.tuples(st.just("user"), users),
        st.tuples(st.just("begin"), st.integers(0, 2_000)),
    ),
    max_size=40,
)


def decide(image: MetadataImage, request: tuple[str, object], number: int) -> Decision:
    match request:
        case ("begin", int(seconds)):
            now_ms = LEADER_EPOCHS_SINCE_MS + 1_000 * seconds
            decision = Decision((begin_log(image, new_id=UUID(int=number), now_ms=now_ms),))
        case ("create", StreamConfig() as config):
            decision = controller.create_stream(
                image, config, new_id=UUID(int=number), now_ms=number
            )
        case ("update", StreamConfig() as config):
            decision = controller.update_stream(image, config)
        case ("delete", str(name)):
            decision = controller.delete_stream(image, name)
        case ("quota", AlterQuota() as command):
            decision = controller.alter_quota(image, command)
        case ("user", AlterUser() as altered):
            decision = alter_user(image, altered)
        case ("start", int(node)):
            decision = started(image, NodeId(node), UUID(int=number), port=node)
        case _:
            raise AssertionError(request)
    return decision


def check(
    image: MetadataImage,
    leader_epochs: dict[tuple[UUID, int], int],
    used: dict[tuple[str, int], tuple[UUID, int]],
) -> None:
    """``used``: of each partition name the newest stream and the largest leader epoch."""
    for stream in image.streams.values():
        assert len(stream.partitions) == stream.config.partitions
        for number, partition in enumerate(stream.partitions):
            assert partition.leader in partition.isr
            assert set(partition.isr) <= set(partition.replicas)
            assert len(set(partition.replicas)) == stream.config.replicas
            key = (stream.stream_id, number)
            assert partition.leader_epoch >= leader_epochs.get(key, 0)
            leader_epochs[key] = partition.leader_epoch
            owner, largest = used.get((stream.name, number), (stream.stream_id, -1))
            assert owner == stream.stream_id or partition.leader_epoch > largest
            used[stream.name, number] = stream.stream_id, max(largest, partition.leader_epoch)


@settings(max_examples=150, deadline=None)
@given(requests)
@example([("create", A), ("delete", "a"), ("create", A)])
def test_replay_equals_live(script: list[tuple[str, object]]) -> None:
    live = first = MetadataImage("c")
    log: list[MetadataRecord] = []
    leader_epochs: dict[tuple[UUID, int], int] = {}
    used: dict[tuple[str, int], tuple[UUID, int]] = {}
    for number, request in enumerate([("start", NodeId(1)), *script]):
        try:
            decision = decide(live, request, number)
        except InvalidRequest:
            continue
        before = live
        live = before.apply_all(decision.records, offset=len(log), epoch=1)
        log.extend(decision.records)
        assert list(live.changes(before)) == list(_slow_changes(live, before))
        check(live, leader_epochs, used)
    replayed = MetadataImage("c")
    for offset, record in enumerate(log):
        replayed = replayed.apply(decode_record(encode_record(record)), offset=offset, epoch=1)
    assert replayed == live
    restored = first.restored(live.records(), offset=live.offset, epoch=live.epoch)
    assert restored == live


def _slow_changes(new: MetadataImage, old: MetadataImage):  # type: ignore[no-untyped-def]
    return MetadataImage("c", 99, new.epoch, new.nodes, new.streams).changes(old)
