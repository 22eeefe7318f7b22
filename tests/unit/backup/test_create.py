"""A backup taken again and again of a log that changes under it."""

from collections.abc import AsyncGenerator
from pathlib import Path
from uuid import UUID

import pytest

from streamlog.backup.batch_file import batches_of, keys_of
from streamlog.backup.create import BackupOptions, BackupReport, take
from streamlog.backup.folder import BackupFolder
from streamlog.backup.manifest import PartitionBackup
from streamlog.backup.source import BackupExtent, Batch
from streamlog.backup.verify import verify_backup
from streamlog.errors import (
    CorruptBatch,
    InvalidRequest,
    NotLeader,
    StreamlogError,
    StreamNotFound,
)
from streamlog.log.encryption.key_ring import KeyRing
from streamlog.metadata.controller import create_stream
from streamlog.metadata.image.image_types import StreamImage
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.image.records import StreamUpdated
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.model import NodeId, TopicPartition
from streamlog.record.batch import read_header
from streamlog.record.compacted import gap
from tests.log_folder import a_key_ring, make_batch
from tests.node_registration import started

ALL_KEYS = KeyRing({name: name.encode().ljust(32, b".") for name in ("k1", "k2")}, None)


class FakeSource:
    """One partition of one stream, of batches in memory."""

    def __init__(
        self, cluster_id: str = "c", *, stream_number: int = 5, encrypted: bool = False
    ) -> None:
        image = MetadataImage(cluster_id)
        for records in (started(image, NodeId(1), UUID(int=1)).records,):
            image = image.apply_all(records, offset=0, epoch=1)
        config = StreamConfig.of(name="s", encrypted=encrypted)
        made = create_stream(image, config, new_id=UUID(int=stream_number), now_ms=stream_number)
        self._image = image.apply_all(made.records, offset=image.offset, epoch=1)
        self.log: list[bytes] = []
        self.start = 0
        self.fault: StreamlogError | None = None
        self.ends: dict[int, int] = {}
        self.gone = False

    @property
    def is_encrypted(self) -> bool:
        return self._image.stream("s").config.encrypted

    def edit(self, *, encrypted: bool) -> None:
        """The stream is configured otherwise."""
        config = self._image.stream("s").config.changed(encrypted=encrypted)
        record = StreamUpdated(config=config)
        self._image = self._image.apply_all([record], offset=self._image.offset, epoch=1)

    @property
    def end(self) -> int:
        return read_header(self.log[-1]).next_offset if self.log else self.start

    def add(self, count: int, *, epoch: int = 0) -> None:
        for _ in range(count):
            self.log.append(make_batch(self.end, [b"value"], epoch=epoch))

    async def image(self) -> MetadataImage:
        return self._image

    async def is_sealed(self, stream: StreamImage) -> bool:
        return stream.config.encrypted

    async def extent(self, stream: StreamImage, tp: TopicPartition) -> BackupExtent:
        return BackupExtent(self.start, self.end)

    async def epoch_end(self, tp: TopicPartition, epoch: int) -> int | None:
        return self.ends.get(epoch, self.end)

    async def confirm(self, stream: StreamImage) -> None:
        if self.gone:
            raise StreamNotFound("s was deleted")

    async def batches(
        self, stream: StreamImage, number: int, start: int, stop: int
    ) -> AsyncGenerator[Batch, None]:
        for batch in self.log:
            header = read_header(batch)
            if header.next_offset > start:
                if self.fault is not None:
                    raise self.fault
                yield header, batch


@pytest.fixture(params=["clear", "encrypted"])
def source(request: pytest.FixtureRequest) -> FakeSource:
    return FakeSource(encrypted=request.param == "encrypted")


async def taken(
    path: Path, source: FakeSource, wish: BackupOptions | None = None, *, key: str | None = "k1"
) -> BackupReport:
    keys = KeyRing() if key is None else a_key_ring(key)
    with BackupFolder.make(path) as folder:
        return await take(folder, source, wish or BackupOptions(), keys)


def kept(path: Path) -> PartitionBackup:
    with BackupFolder.open(path) as folder:
        checked = verify_backup(folder, ALL_KEYS)
        assert (checked.problems, checked.unopened) == ([], 0)
        return folder.manifest.stream("s").partitions[0]


def ranges(path: Path) -> list[tuple[int, int]]:
    with BackupFolder.open(path) as folder:
        stream = folder.manifest.stream("s")
        where = folder.partition(stream, 0)
        return [
            (header.base_offset, header.next_offset)
            for piece in stream.partitions[0].pieces
            for header, _ in batches_of(where / piece.name, piece, ALL_KEYS)
        ]


def files(path: Path, pattern: str = "*.log") -> int:
    return len(list(path.rglob(pattern)))


async def test_each_time_what_is_new(tmp_path: Path, source: FakeSource) -> None:
    for count in (0, 3, 0, 2):
        source.add(count)
        assert (await taken(tmp_path, source)).new_offsets == count
        assert kept(tmp_path).next_offset == source.end
    assert ranges(tmp_path) == [(n, n + 1) for n in range(5)]


async def test_a_gap_over_what_was_backed_up(tmp_path: Path, source: FakeSource) -> None:
    """Compaction has made one of records that are in the backup and of some that are not."""
    source.add(3)
    await taken(tmp_path, source)
    source.log = [gap(0, 6, leader_epoch=0, max_timestamp_ms=0)]
    source.add(1)
    await taken(tmp_path, source)
    assert ranges(tmp_path) == [(0, 1), (1, 2), (2, 3), (3, 6), (6, 7)]


async def test_what_the_cluster_forgets_stays_until_it_is_pruned(
    tmp_path: Path, source: FakeSource
) -> None:
    source.add(4)
    await taken(tmp_path, source)
    source.start, source.log = 4, []
    await taken(tmp_path, source)
    assert (kept(tmp_path).start_offset, kept(tmp_path).log_start_offset) == (0, 4)
    await taken(tmp_path, source, BackupOptions(prune=True))
    assert kept(tmp_path).pieces == ()
    source.add(2)
    await taken(tmp_path, source)
    assert ranges(tmp_path) == [(4, 5), (5, 6)]
    assert files(tmp_path) == 1


async def test_records_that_came_and_went_between_two_backups(
    tmp_path: Path, source: FakeSource
) -> None:
    source.add(2)
    await taken(tmp_path, source)
    source.start, source.log = 5, []
    source.add(1)
    (problem,) = (await taken(tmp_path, source)).problems
    assert "the records from 2 to 5 are gone" in problem
    assert "--full" in problem
    assert kept(tmp_path).next_offset == 2
    assert (await taken(tmp_path, source, BackupOptions(full=True))).problems == []
    assert ranges(tmp_path) == [(5, 6)]


@pytest.mark.parametrize("shorter", [True, False])
async def test_a_log_that_has_gone_on_otherwise(
    tmp_path: Path, source: FakeSource, shorter: bool
) -> None:
    source.add(3)
    await taken(tmp_path, source)
    source.log = source.log[:1]
    source.add(1 if shorter else 5, epoch=2)
    source.ends = {} if shorter else {0: 1}
    (problem,) = (await taken(tmp_path, source)).problems
    assert "has gone on otherwise" in problem
    assert kept(tmp_path).next_offset == 3


async def test_one_that_is_taken_anew_replaces_the_old_one_when_it_is_whole(
    tmp_path: Path, source: FakeSource
) -> None:
    source.add(3)
    await taken(tmp_path, source)
    source.fault = CorruptBatch("damaged")
    assert (await taken(tmp_path, source, BackupOptions(full=True))).problems == ["s/0: damaged"]
    assert kept(tmp_path).next_offset == 3
    source.fault = None
    await taken(tmp_path, source, BackupOptions(full=True))
    assert kept(tmp_path).next_offset == 3
    assert files(tmp_path) == 1


async def test_a_partition_that_cannot_be_read_stays_as_it_was(
    tmp_path: Path, source: FakeSource
) -> None:
    source.add(2)
    await taken(tmp_path, source)
    source.add(2)
    source.fault = NotLeader("nobody leads")
    assert (await taken(tmp_path, source)).problems == ["s/0: nobody leads"]
    assert kept(tmp_path).next_offset == 2


async def test_another_clusters_backup_is_not_touched(tmp_path: Path, source: FakeSource) -> None:
    source.add(1)
    await taken(tmp_path, source)
    with pytest.raises(InvalidRequest, match="is a backup of cluster c, not of d"):
        await taken(tmp_path, FakeSource("d"))
    assert kept(tmp_path).next_offset == 1


async def test_a_stream_made_anew_does_not_take_the_place_of_the_old_one(
    tmp_path: Path, source: FakeSource
) -> None:
    source.add(3)
    await taken(tmp_path, source)
    again = FakeSource(stream_number=6, encrypted=source.is_encrypted)
    again.add(1)
    await taken(tmp_path, again)
    with BackupFolder.open(tmp_path) as folder:
        assert len(folder.manifest.streams) == 2
    assert kept(tmp_path).next_offset == 1
    await taken(tmp_path, again, BackupOptions(prune=True))
    with BackupFolder.open(tmp_path) as folder:
        assert len(folder.manifest.streams) == 1


async def test_two_do_not_write_at_once(tmp_path: Path, source: FakeSource) -> None:
    with BackupFolder.make(tmp_path), pytest.raises(InvalidRequest, match="is in use"):
        await taken(tmp_path, source)


async def test_an_encrypted_stream_takes_a_key_or_a_word_that_it_may_be_in_the_clear(
    tmp_path: Path,
) -> None:
    source = FakeSource(encrypted=True)
    source.add(2)
    with pytest.raises(InvalidRequest, match=r"^s is encrypted: .*--key .*--plaintext"):
        await taken(tmp_path / "sealed", source, key=None)
    assert files(tmp_path) == 0
    await taken(tmp_path / "sealed", source)
    assert [piece.encrypted for piece in kept(tmp_path / "sealed").pieces] == [True]
    assert not holds(tmp_path, b"value")
    await taken(tmp_path / "clear", source, BackupOptions(in_clear=True), key=None)
    assert [piece.encrypted for piece in kept(tmp_path / "clear").pieces] == [False]
    assert holds(tmp_path, b"value")


async def test_one_that_is_encrypted_no_more_stays_so_in_the_backup_unless_it_is_said(
    tmp_path: Path,
) -> None:
    source = FakeSource(encrypted=True)
    source.add(2)
    await taken(tmp_path, source)
    source.edit(encrypted=False)
    source.add(2)
    with pytest.raises(InvalidRequest, match="s is encrypted"):
        await taken(tmp_path, source, key=None)
    await taken(tmp_path, source)
    assert not holds(tmp_path, b"value")
    source.add(1)
    await taken(tmp_path, source, BackupOptions(in_clear=True), key=None)
    assert [piece.encrypted for piece in kept(tmp_path).pieces] == [True, False]
    await taken(tmp_path, source, BackupOptions(full=True, in_clear=True))
    assert [piece.encrypted for piece in kept(tmp_path).pieces] == [False]
    assert files(tmp_path, "*.key") == 0


async def test_one_that_comes_to_be_encrypted(tmp_path: Path) -> None:
    source = FakeSource()
    source.add(2)
    await taken(tmp_path, source, key=None)
    source.edit(encrypted=True)
    source.add(2)
    await taken(tmp_path, source)
    assert ranges(tmp_path) == [(n, n + 1) for n in range(4)]
    assert [piece.encrypted for piece in kept(tmp_path).pieces] == [False, True]


async def test_what_is_new_is_under_the_new_key(tmp_path: Path) -> None:
    source = FakeSource(encrypted=True)
    source.add(2)
    await taken(tmp_path, source, key="k1")
    source.add(2)
    await taken(tmp_path, source, key="k2")
    assert ranges(tmp_path) == [(n, n + 1) for n in range(4)]
    with BackupFolder.open(tmp_path) as folder:
        assert keys_of(folder, folder.manifest.stream("s")) == {"k1", "k2"}
        assert verify_backup(folder).unopened == 2
        assert verify_backup(folder, a_key_ring("k2")).unopened == 1


def holds(path: Path, payload: bytes) -> bool:
    return any(payload in it.read_bytes() for it in path.rglob("*") if it.is_file())
