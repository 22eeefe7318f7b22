import errno
import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import UUID

import pytest

from streamlog.config import LogSection
from streamlog.errors import (
    CorruptData,
    CorruptFile,
    StorageFailed,
    StorageFull,
    StreamlogError,
)
from streamlog.log.layout import METADATA_NAME
from streamlog.log.log import PartitionLog
from streamlog.log.settings import LogSettings
from streamlog.log.storage.file_pool import FilePool
from streamlog.metadata import controller
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.model import LogId, NodeId
from streamlog.partition.storage.checkpoints import NOTHING, Checkpoints, Offsets
from streamlog.partition.storage.folder import Folders, sweep
from streamlog.partition.storage.log_opener import LogOpener, LogOpening
from streamlog.record.erasure import erasure_batches
from streamlog.record.offset_set import OffsetSet
from tests.log_folder import make_batch, sync
from tests.node_registration import started
from tests.partition_world import tp
from tests.unit.failing_disk import FailingDisk

ID, OTHER, ONE = UUID(int=1), UUID(int=2), NodeId(1)
ASSIGNED = 3
"""The incarnation of the replica in ``Bench.image``."""


class Bench:
    def __init__(self, data_dir: Path) -> None:
        self.disk = FailingDisk()
        self.folders = Folders(data_dir, self.disk)
        self._opener = LogOpener(
            self.folders,
            Checkpoints(data_dir, self.disk),
            None,  # type: ignore[arg-type]  # nothing is opened by way of the image
            ThreadPoolExecutor(1),  # without a thread until it is used
            LogSection(),
            disk=self.disk,
            files=FilePool(self.disk, 8),
            power_lost=True,
            spawn=lambda work: work.close(),
        )

    def open(
        self, offsets: Offsets = NOTHING, stream_id: UUID = ID, incarnation: int = ASSIGNED
    ) -> int:
        log = self.log(offsets, stream_id, incarnation)
        log.close()
        return log.log_end_offset

    def log(
        self,
        offsets: Offsets = NOTHING,
        stream_id: UUID = ID,
        incarnation: int = ASSIGNED,
        *,
        first_offset: int = 0,
    ) -> PartitionLog:
        opening = LogOpening(tp("s"), stream_id, incarnation, LogSettings(), offsets, first_offset)
        ((_, opened),) = self._opener._open_some([opening], None)
        if isinstance(opened, StreamlogError):
            raise opened
        return opened

    def open_new(self, *streams: str) -> dict[str, PartitionLog | StreamlogError]:
        """Together, as one request for so many topics has them opened."""
        openings = [LogOpening(tp(it), ID, ASSIGNED, LogSettings(), NOTHING) for it in streams]
        return {it.tp.stream: log for it, log in self._opener._open_some(openings, None)}

    def image(self, *names: str) -> MetadataImage:
        image = MetadataImage("c")
        decision = started(image, ONE, ID)
        image = image.apply_all(decision.records, offset=0, epoch=1)
        for name in names:
            config = StreamConfig.of(name=name)
            decision = controller.create_stream(image, config, new_id=ID, now_ms=0)
            image = image.apply_all(decision.records, offset=image.offset, epoch=1)
        return image


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_log_begins_where_the_checkpoint_says(bench: Bench) -> None:
    assert bench.open() == 0
    assert bench.open(Offsets(0, 7, 0)) == 7


def test_a_foreign_folder_is_not_opened(bench: Bench) -> None:
    bench.open()
    with pytest.raises(CorruptFile):
        bench.open(stream_id=OTHER)


def test_a_loss_is_told(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.open()
    with caplog.at_level(logging.ERROR):
        bench.open(Offsets(high_watermark=3, log_start=0, recovery_point=0))
    assert "committed records lost" in caplog.text


@pytest.mark.parametrize(
    ("code", "error"), [(errno.ENOSPC, StorageFull), (errno.EIO, StorageFailed)]
)
def test_what_the_disk_says(bench: Bench, code: int, error: type[Exception]) -> None:
    bench.disk.faults.break_("make_directory", code=code)
    with pytest.raises(error):
        bench.open()


def test_erasures_below_a_checkpoint_that_is_older_than_a_cut_are_found(bench: Bench) -> None:
    log = bench.log()
    log.append(make_batch(0, 9), 0)
    sync(log)
    log.truncate_to(0)
    log.append(make_batch(0, 2, epoch=1), 0)
    erasures = erasure_batches(OffsetSet([1]), base_offset=2, leader_epoch=1, timestamp_ms=0)
    log.append(next(erasures), 0)
    log.append(make_batch(3, 9, epoch=1), 0)
    log.close()
    log = bench.log(Offsets(high_watermark=0, log_start=0, recovery_point=9))
    assert [it.offset for it in log.erasures.pending] == [2]
    log.close()


def test_sweep_keeps_what_is_known(bench: Bench) -> None:
    bench.open()
    sweep(bench.folders, bench.image("s"), frozenset(), ONE)
    assert [known for known, _ in bench.folders.present()] == [tp("s")]


def test_sweep_discards_a_replica_that_was_moved_away_and_back(bench: Bench) -> None:
    image = bench.image("s")
    assert image.stream("s").partition(0).incarnation(ONE) == ASSIGNED
    bench.open(incarnation=ASSIGNED - 1)
    sweep(bench.folders, image, frozenset(), ONE)
    assert bench.folders.present() == []
    assert len(bench.folders.leftovers()) == 1
    assert bench.open() == 0


def test_sweep_keeps_a_replica_that_is_newer_than_the_metadata(bench: Bench) -> None:
    """The metadata has lost its end: what is here may be the only copy."""
    bench.open(incarnation=ASSIGNED + 1)
    sweep(bench.folders, bench.image("s"), frozenset(), ONE)
    assert [known for known, _ in bench.folders.present()] == [tp("s")]
    with pytest.raises(CorruptFile):
        bench.open()


def test_sweep_keeps_a_folder_with_a_damaged_mark(bench: Bench) -> None:
    bench.open()
    (bench.folders.path(tp("s")) / METADATA_NAME).write_bytes(b"?")
    sweep(bench.folders, bench.image("s"), frozenset(), ONE)
    assert bench.open() == 0


def test_sweep_discards_the_deleted_and_keeps_the_unknown_apart(bench: Bench) -> None:
    bench.folders.claim(tp("gone"), OTHER, 0)
    bench.folders.claim(tp("strange"), UUID(int=3), 0)
    bench.folders.claim(tp("s", 5), ID, 0)  # a partition that the stream does not have
    sweep(bench.folders, bench.image("s"), frozenset({OTHER}), ONE)
    assert bench.folders.present() == []
    assert [path.name.split(".")[0] for path in bench.folders.leftovers()] == ["gone"]
    assert len(list(bench.folders.orphans.iterdir())) == 2


def test_sweep_touches_nothing_when_the_metadata_is_empty(bench: Bench) -> None:
    bench.folders.claim(tp("a"), OTHER, 0)
    bench.folders.claim(tp("b"), UUID(int=3), 0)
    with pytest.raises(CorruptData):
        sweep(bench.folders, bench.image(), frozenset({OTHER}), ONE)
    assert len(bench.folders.present()) == 2
    sweep(bench.folders, bench.image(), frozenset({OTHER, UUID(int=3)}), ONE)
    assert bench.folders.present() == []


def test_sweep_keeps_a_deleted_streams_folder_that_has_lost_its_mark_from_its_namesake(
    bench: Bench,
) -> None:
    bench.open()
    path = bench.folders.path(tp("s"))
    (path / METADATA_NAME).unlink()
    image = bench.image("s")
    here = LogId(tp("s"), image.stream("s").stream_id, ASSIGNED)
    sweep(bench.folders, image, frozenset(), ONE, [here._replace(stream_id=OTHER), here])
    sweep(bench.folders, image, frozenset(), ONE, [])
    assert path.exists(), "nothing speaks against its being this stream's"
    sweep(bench.folders, image, frozenset(), ONE, [here._replace(stream_id=OTHER)])
    assert not path.exists()
    assert len(list(bench.folders.orphans.iterdir())) == 1
    path.mkdir(parents=True)
    sweep(bench.folders, image, frozenset(), ONE, [here._replace(stream_id=OTHER)])
    assert path.exists(), "an empty one was cut short by a crash"


def test_new_log_begins_at_the_first_offset_of_its_stream(bench: Bench) -> None:
    for _ in range(2):  # the second time it is there, and no checkpoint says so
        log = bench.log(first_offset=99)
        assert (log.log_start_offset, log.log_end_offset) == (99, 99)
        assert not log.lost_end.is_noted
        log.close()


def test_log_that_begins_later_by_now_stays_there(bench: Bench) -> None:
    log = bench.log(Offsets(150, 150, 150), first_offset=99)
    assert (log.log_start_offset, log.log_end_offset) == (150, 150)
    log.close()


def test_new_logs_are_opened_together(bench: Bench) -> None:
    for _ in range(2):  # the second time they are there
        logs = bench.open_new("a", "b", "c")
        for number, name in enumerate("abc"):
            log = logs[name]
            assert isinstance(log, PartitionLog)
            assert log.log_end_offset in (0, number + 1)
            if not log.log_end_offset:
                log.append(make_batch(0, number + 1), 0)
                sync(log)
            log.close()
        mark = bench.folders.mark(bench.folders.path(tp("a")))
        assert mark is not None
        assert (mark.stream_id, mark.incarnation) == (ID, ASSIGNED)


@pytest.mark.parametrize("operation", ["make_directory", "create", "pwrite", "rename"])
def test_new_log_that_the_disk_refuses_does_not_hold_up_the_others(
    bench: Bench, operation: str
) -> None:
    bench.disk.faults.break_(operation, code=errno.ENOSPC, path="/b/")
    logs = bench.open_new("a", "b", "c")
    assert isinstance(logs["b"], StorageFull)
    for name in "ac":
        log = logs[name]
        assert isinstance(log, PartitionLog)
        log.close()
    bench.disk.faults.mend()
    log = bench.open_new("b")["b"]
    assert isinstance(log, PartitionLog)
    assert log.log_end_offset == 0
    log.close()


def test_new_log_of_a_deleted_streams_folder_is_not_opened(bench: Bench) -> None:
    bench.folders.claim(tp("b"), OTHER, 1)
    logs = bench.open_new("a", "b")
    assert isinstance(logs["b"], CorruptFile)
    log = logs["a"]
    assert isinstance(log, PartitionLog)
    log.close()
