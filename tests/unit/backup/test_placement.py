from uuid import UUID

from streamlog.backup.manifest import BackupManifest, PartitionBackup, StreamBackup
from streamlog.backup.placement import (
    LEADER_EPOCHS_APART,
    OFFSETS_APART,
    PRODUCER_IDS_APART,
    QUORUM_EPOCHS_APART,
    placements,
    restored_image,
)
from streamlog.metadata.controller import create_stream
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.image.records import MetadataLogBegun, MetadataRecord, ProducerIdsAllocated
from streamlog.metadata.image.snapshot import decode_snapshot, encode_snapshot
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.model import NO_LEADER, NodeId, TopicPartition
from tests.node_registration import started

ONE, TWO, THREE = NodeId(1), NodeId(2), NodeId(3)
MANIFEST = BackupManifest(backup_id=UUID(int=7), cluster_id="old", written_by="x", finished_ms=5)


def world(nodes: int = 3) -> MetadataImage:
    image = MetadataImage("old")

    def write(*records: MetadataRecord) -> None:
        nonlocal image
        image = image.apply_all(records, offset=image.offset, epoch=3)

    for number in range(1, nodes + 1):
        write(*started(image, NodeId(number), UUID(int=100 + number), port=number).records)
    for name, replicas in (("all", nodes), ("one", 1)):
        config = StreamConfig.of(name=name, partitions=3, replicas=replicas)
        write(*create_stream(image, config, new_id=UUID(int=len(name)), now_ms=0).records)
    return image


def test_replicas_stay_where_their_nodes_are() -> None:
    image = world()
    placed = placements(image, (ONE, TWO, THREE))
    for name, stream in image.streams.items():
        for number, partition in enumerate(stream.partitions):
            assert placed[TopicPartition(name, number)] == partition.replicas


def test_others_are_spread() -> None:
    placed = placements(world(), (NodeId(7), NodeId(8)))
    assert {len(set(replicas)) for tp, replicas in placed.items() if tp.stream == "all"} == {2}
    alone = [replicas for tp, replicas in placed.items() if tp.stream == "one"]
    assert {replicas[0] for replicas in alone} == {7, 8}


def test_the_new_cluster_waits_for_its_nodes() -> None:
    old = world()
    image = restored_image(old, (ONE, TWO), "new", MANIFEST)
    assert (image.cluster_id, set(image.nodes), bool(image.voters)) == ("new", {1, 2}, False)
    assert all(node.fenced for node in image.nodes.values())
    assert image.leaderless == 6
    for name, stream in image.streams.items():
        before = old.streams[name]
        assert (stream.config, stream.stream_id) == (before.config, before.stream_id)
        for was, is_ in zip(before.partitions, stream.partitions, strict=True):
            assert (is_.leader, is_.isr) == (NO_LEADER, is_.replicas)
            assert is_.leader_epoch > was.leader_epoch


def test_no_record_is_of_a_later_epoch_than_its_leader() -> None:
    old = world()
    one = old.streams["one"]
    kept = StreamBackup(
        stream_id=one.stream_id,
        config=one.config,
        created_ms=0,
        partitions=(PartitionBackup(number=1, log_start_offset=0, last_epoch=40),),
    )
    image = restored_image(old, (ONE,), "old", MANIFEST.with_stream(kept))
    first = 40 + LEADER_EPOCHS_APART
    assert {it.leader_epoch for s in image.streams.values() for it in s.partitions} == {first}
    assert image.leader_epochs_end == first


def test_whatever_is_counted_goes_on_far_above_the_backup() -> None:
    """The old cluster went on after it."""
    old = world()
    old = old.apply(ProducerIdsAllocated(node_id=ONE, end=9_000), offset=old.offset, epoch=3)
    old = old.apply(
        MetadataLogBegun(log_id=UUID(int=1), begun_ms=1, first_producer_id=2),
        offset=old.offset,
        epoch=3,
    )
    image = restored_image(old, (ONE,), "old", MANIFEST)
    assert image.producer_ids_end == 9_000 + PRODUCER_IDS_APART
    assert image.offset == old.offset + OFFSETS_APART
    assert image.epoch == old.epoch + QUORUM_EPOCHS_APART
    assert image.log is None, "its first controller names it"
    newer = restored_image(old, (ONE,), "old", MANIFEST, last_producer_id=50_000)
    assert newer.producer_ids_end == 50_001 + PRODUCER_IDS_APART


def test_each_machine_makes_the_same() -> None:
    made = [encode_snapshot(restored_image(world(), (TWO, ONE), "n", MANIFEST)) for _ in range(2)]
    assert made[0] == made[1]
    assert decode_snapshot(made[0], "x").cluster_id == "n"
