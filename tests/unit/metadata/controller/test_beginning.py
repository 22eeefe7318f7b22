from dataclasses import replace
from uuid import UUID

from streamlog.metadata.controller.bootstrap import (
    LEADER_EPOCHS_SINCE_MS,
    PRODUCER_IDS_PER_MS,
    begin_log,
)
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.image.records import MetadataLogBegun
from tests.controller_world import World

ID = UUID(int=9)
NOW_MS = LEADER_EPOCHS_SINCE_MS + 7_000


def begun(image: MetadataImage, now_ms: int = NOW_MS) -> MetadataLogBegun:
    return begin_log(image, new_id=ID, now_ms=now_ms)


def test_a_new_cluster_begins_at_leader_epoch_0_and_at_ids_of_its_own() -> None:
    record = begun(MetadataImage("c"))
    assert (record.log_id, record.begun_ms, record.first_leader_epoch) == (ID, NOW_MS, 0)
    assert record.first_producer_id == NOW_MS * PRODUCER_IDS_PER_MS < 2**53


def test_a_later_log_begins_above_what_an_earlier_one_of_the_same_backup_gave() -> None:
    backup = replace(MetadataImage("c"), offset=10, producer_ids_end=5_000, leader_epochs_end=3)
    first, second = begun(backup), begun(backup, NOW_MS + 60_000)
    assert second.first_producer_id >= first.first_producer_id + 60_000_000
    assert second.first_leader_epoch == first.first_leader_epoch + 60


def test_a_clock_that_has_gone_back_takes_nothing_back() -> None:
    backup = replace(MetadataImage("c"), offset=10, producer_ids_end=2**60, leader_epochs_end=10**9)
    record = begun(backup, now_ms=0)
    assert (record.first_producer_id, record.first_leader_epoch) == (2**60, 10**9)


def test_from_here_on_no_partition_has_a_lower_leader_epoch() -> None:
    world = World(2)
    world.create("s", partitions=2)
    before = world.image
    image = before.apply(begun(before), offset=before.offset, epoch=1)
    assert image.log is not None
    assert image.log.first_producer_id == image.producer_ids_end
    assert image.leader_epochs_end == 7
    for old, new in zip(before.stream("s").partitions, image.stream("s").partitions, strict=True):
        assert (old.leader_epoch, new.leader_epoch) == (0, 7)
        assert new.partition_epoch == old.partition_epoch + 1
        assert (new.leader, new.isr) == (old.leader, old.isr)
    assert [it.new for it in image.changes(before)] == [image.stream("s")]
