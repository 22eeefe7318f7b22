"""A partition's folder: where it is and whose it is. Blocking calls.

``<data_dir>/streams/<stream>/<partition>/`` belongs to the stream whose id its
``partition.metadata`` names, in Kafka's form, so that a stream created again under an old name
never gets the old records; and to the replica whose incarnation it tells, so that a replica that
was moved away and back never gets its own. A folder to be deleted is first moved to
``<data_dir>/deleted/``, which is atomic, then removed. One whose stream is not known is moved to
``<data_dir>/orphans/`` and kept: it may be the metadata that is short.
"""

import errno
import logging
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final
from uuid import UUID

from streamlog.condition import CRITICAL, REPAIR_DISK, Condition
from streamlog.errors import CorruptData, CorruptFile
from streamlog.log.layout import (
    METADATA_NAME,
    TEMPORARY_SUFFIX,
    PartitionMetadata,
    decode_mark,
    encode_mark,
)
from streamlog.log.storage.disk import Disk, write_all
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.model import LogId, NodeId, TopicPartition

logger = logging.getLogger(__name__)

ORPHAN_MOVED: Final = Condition(
    "SL-0214",
    "folder of an unknown stream moved away",
    "it lies in orphans/: remove it when it is not needed",
    meaning="The data folder had a partition that the cluster does not know.",
)
FOLDER_MARK_DAMAGED: Final = Condition(
    "SL-0215",
    "folder's mark damaged",
    REPAIR_DISK,
    meaning="The file that says which partition a folder belongs to is damaged.",
    severity=CRITICAL,
)

NAME_LENGTH_KEPT: Final = 200
"""Of a stream's name, in that of a folder that is moved away: a file system takes 255 bytes."""
MAKE_TRIES: Final = 100
"""Each vain one is another partition's folder that was moved away at that moment."""


class Folders:
    """All partition folders of a node."""

    def __init__(self, data_dir: Path, disk: Disk) -> None:
        self.streams = data_dir / "streams"
        self.deleted = data_dir / "deleted"
        self.orphans = data_dir / "orphans"
        self._disk = disk

    def path(self, tp: TopicPartition) -> Path:
        return self.streams / tp.stream / str(tp.partition)

    def present(self) -> list[tuple[TopicPartition, Path]]:
        """The partition folders that are there, of whatever stream."""
        found = []
        for stream in sorted(_folders(self.streams)):
            found += [
                (TopicPartition(stream.name, int(folder.name)), folder)
                for folder in sorted(_folders(stream))
                if folder.name.isascii() and folder.name.isdigit()
            ]
        return found

    def claim(self, tp: TopicPartition, stream_id: UUID, incarnation: int) -> None:
        """Make the folder, or see that it is this stream's, and this replica's. Raises CorruptFile
        if it is another's.

        The mark comes before any segment. A folder without one was cut short by a crash, or has
        lost it; a deleted stream's would have been moved away, so it is taken as ours.
        """
        path = self.path(tp)
        self._make(str(path))
        try:
            mark = self.mark(path)
        except CorruptFile:
            mark = None
        if mark is not None and mark.stream_id != stream_id:
            raise CorruptFile(f"{path} belongs to stream id {mark.stream_id}, not {stream_id}")
        if mark is None or mark.incarnation is None:
            # A process that was killed may not have done so.
            for around in (path.parent, self.streams, self.streams.parent):
                self._disk.sync_directory(str(around))
            self._disk.write_small(str(path / METADATA_NAME), encode_mark(stream_id, incarnation))
        elif mark.incarnation != incarnation:
            raise CorruptFile(
                f"{path} is of the replica that was assigned at metadata offset"
                f" {mark.incarnation}, not at {incarnation}"
            )

    def make_new(
        self, wanted: Iterable[LogId], sync_all: Callable[[int], bool]
    ) -> dict[LogId, OSError | None]:
        """Folders with nothing but their marks, for those of ``wanted`` that have none; what failed.
        One that is there already is not in the answer: ``claim`` it.

        A folder that has its mark is durable; the mark's name, and others in it, are once ``sync_new``
        has returned. ``sync_all``: syncs the file system in place of so many files and folders, and
        says whether it is synced now; else each of them is.
        """
        made: dict[LogId, OSError | None] = {}
        has_place = False
        for it in wanted:
            path = self._path(it.tp)
            try:
                if not has_place:  # a node's first stream
                    self._disk.make_directory(str(self.streams))
                    has_place = True
                if not self._make(path, durable=False):
                    continue
                made[it] = None
                mark = encode_mark(it.stream_id, it.incarnation)
                self._write(f"{path}/{METADATA_NAME}{TEMPORARY_SUFFIX}", mark)
            except OSError as error:
                made[it] = error
        left = [it for it, error in made.items() if error is None]
        if left and not sync_all(3 * len(left)):
            made |= self._sync_marks(left)
        for it in left:
            if made[it] is None:
                mark_path = f"{self._path(it.tp)}/{METADATA_NAME}"
                try:
                    self._disk.rename(mark_path + TEMPORARY_SUFFIX, mark_path)
                except OSError as error:
                    made[it] = error
        return made

    def _sync_marks(self, made: Iterable[LogId]) -> dict[LogId, OSError]:
        """And that the folders are there; what failed."""
        failed: dict[LogId, OSError] = {}
        around = set[str]()
        for it in made:
            path = self._path(it.tp)
            parents = {path.rpartition("/")[0], str(self.streams)}
            try:
                self._sync(f"{path}/{METADATA_NAME}{TEMPORARY_SUFFIX}")
                for parent in parents - around:
                    self._disk.sync_directory(parent)
                around |= parents
            except OSError as error:
                failed[it] = error
        return failed

    def sync_new(
        self, made: Collection[LogId], sync_all: Callable[[int], bool]
    ) -> dict[LogId, OSError]:
        """What new folders hold is durable after this; what failed."""
        failed: dict[LogId, OSError] = {}
        if made and not sync_all(len(made)):
            for it in made:
                try:
                    self._disk.sync_directory(self._path(it.tp))
                except OSError as error:
                    failed[it] = error
        return failed

    def mark(self, path: Path) -> PartitionMetadata | None:
        """Whose it is; None without a mark. Raises CorruptFile if it is unreadable."""
        file = path / METADATA_NAME
        try:
            return decode_mark(self._disk.read_small(str(file)))
        except FileNotFoundError:
            return None
        except ValueError:
            raise CorruptFile(f"{file}: does not name a stream id") from None

    def discard(self, tp: TopicPartition, stream_id: UUID | None) -> Path:
        """Out of the way, durably; where it is until it is removed."""
        return self._move(tp, self.deleted, stream_id)

    def orphan(self, tp: TopicPartition, stream_id: UUID | None) -> Path:
        """Out of the way, durably, and kept."""
        return self._move(tp, self.orphans, stream_id)

    def leftovers(self) -> list[Path]:
        """Discarded folders that are not yet removed."""
        return sorted(_folders(self.deleted))

    def _path(self, tp: TopicPartition) -> str:
        """``path``, for thousands of them."""
        return f"{self.streams}/{tp.stream}/{tp.partition}"

    def _make(self, path: str, *, durable: bool = True) -> bool:
        """Whether it was made. The stream's folder may go at the same time, with another partition that
        leaves it.
        """
        for _ in range(MAKE_TRIES - 1):
            with suppress(FileNotFoundError):
                return self._disk.make_directory(path, durable=durable)
        return self._disk.make_directory(path, durable=durable)

    def _write(self, path: str, data: bytes) -> None:
        """A new file, not synced."""
        file = self._disk.create(path)
        try:
            write_all(file, data, 0)
        finally:
            file.close()

    def _sync(self, path: str) -> None:
        file = self._disk.open(path)
        try:
            file.sync()
        finally:
            file.close()

    def _move(self, tp: TopicPartition, place: Path, stream_id: UUID | None) -> Path:
        source = self.path(tp)
        self._disk.make_directory(str(place))
        mark = stream_id.hex if stream_id else "unknown"
        name = f"{tp.stream[:NAME_LENGTH_KEPT]}.{tp.partition}.{mark}"
        target, number = place / name, 1
        while target.exists():
            number += 1
            target = place / f"{name}.{number}"
        self._disk.rename(str(source), str(target))
        self._disk.sync_directory(str(place))
        with suppress(FileNotFoundError):  # gone already, with another partition
            self._disk.sync_directory(str(source.parent))
        self._remove_if_empty(source.parent)
        return target

    def _remove_if_empty(self, path: Path) -> None:
        try:
            self._disk.remove_directory(str(path))
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT):
                raise


def _folders(path: Path) -> list[Path]:
    with suppress(FileNotFoundError):
        return [entry for entry in path.iterdir() if entry.is_dir() and not entry.is_symlink()]
    return []


def sweep(
    folders: Folders,
    image: MetadataImage,
    deleted: frozenset[UUID],
    node_id: NodeId,
    known: Collection[LogId] = (),
    *,
    is_log_known: bool = False,
) -> None:
    """Move away every folder that is not a partition's of ``image``. Raises CorruptData, OSError.

    Those of streams in ``deleted``, and of partitions that were moved to other nodes, are
    discarded, also if they were moved back since. Others are kept as orphans, for it may be the
    metadata that is short. If it knows nothing at all while there are logs, nothing is touched,
    unless ``is_log_known``: ``image`` is of the metadata log by which these folders were opened last,
    and up to date. Its last stream has been deleted then, in a part of it that a snapshot replaced.

    ``known``: the logs that were here when the node ran last. By these a folder that has lost its
    mark is told from that of a deleted stream of the same name.

    A folder of a replica that is assigned later than ``image`` knows stays where it is, and the
    partition cannot be opened: it may be the only copy.
    """
    strange = []
    for tp, path in folders.present():
        mark = _mark(folders, tp)
        owner = None if mark is None else mark.stream_id
        stream = image.streams.get(tp.stream)
        is_wanted = stream is not None and tp.partition < len(stream.partitions)
        if is_wanted and stream is not None and owner in (None, stream.stream_id):
            partition = stream.partitions[tp.partition]
            wanted = LogId(tp, stream.stream_id, partition.incarnation(node_id))
            if (
                mark is None  # first, for each folder is asked this at each start
                and wanted not in known
                and any(it.tp == tp for it in known)
                and any(path.iterdir())
            ):
                strange.append((tp, path, owner))
                continue
            if node_id not in partition.replicas or _is_before(
                mark, partition.incarnation(node_id)
            ):
                folders.discard(tp, owner)
            continue
        strange.append((tp, path, owner))
    orphans = [(tp, path, owner) for tp, path, owner in strange if owner not in deleted]
    if orphans and not image.streams and not is_log_known:
        raise CorruptData(
            f"{folders.streams} holds {len(orphans)} partitions and the metadata knows no stream;"
            " restore the folder metadata, or move the folder streams away"
        )
    for tp, path, owner in strange:
        if owner in deleted:
            folders.discard(tp, owner)
            continue
        kept = folders.orphan(tp, owner)
        logger.error(
            ORPHAN_MOVED,
            extra={
                "stream": tp.stream,
                "partition": tp.partition,
                "file": str(path),
                "kept": str(kept),
            },
        )


def _is_before(mark: PartitionMetadata | None, incarnation: int) -> bool:
    return mark is not None and mark.incarnation is not None and mark.incarnation < incarnation


def _mark(folders: Folders, tp: TopicPartition) -> PartitionMetadata | None:
    """None also where the mark is damaged: the name in the metadata has to do then."""
    try:
        return folders.mark(folders.path(tp))
    except CorruptFile as error:
        logger.error(FOLDER_MARK_DAMAGED, extra={"problem": str(error)})
        return None
