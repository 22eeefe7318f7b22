"""A whole cluster out of a backup: its nodes' data folders, while none of them runs. Blocking.

``node.json`` is written last: a folder without it is refused by a node, and begun again by the next
run, which knows it by the file ``restoring``.
"""

import contextlib
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from streamlog.backup.batch_file import batches_of, check_piece
from streamlog.backup.folder import BackupFolder
from streamlog.backup.group_offsets import Ends
from streamlog.backup.manifest import PartitionBackup, StreamBackup
from streamlog.backup.metadata_image import image_in
from streamlog.backup.placement import directory_id, node_file, placements, restored_image
from streamlog.backup.restored_groups import carried_on, groups_of
from streamlog.errors import CorruptFile, InvalidRequest
from streamlog.log.checked_file import owner_of
from streamlog.log.checkpoint import OffsetCheckpoint
from streamlog.log.control_load import history_of, load
from streamlog.log.encryption.key_file import scope_of
from streamlog.log.encryption.key_ring import KeyRing
from streamlog.log.erasure import erasures_file
from streamlog.log.layout import METADATA_NAME, encode_mark
from streamlog.log.log import PartitionLog
from streamlog.log.settings import LogSettings
from streamlog.log.storage.disk import OsDisk, storage_errors
from streamlog.log.storage.file_pool import FilePool
from streamlog.log.transactions import transactions_file
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.image.snapshot import encode_snapshot, snapshot_id
from streamlog.metadata.nodes.data_dir import FORMAT_VERSION
from streamlog.metadata.quorum.store import MetadataStore
from streamlog.metadata.stream.stream_config import OFFSETS_STREAM
from streamlog.model import LogId, NodeId, TopicPartition
from streamlog.record.batch import CONTROL, TRANSACTIONAL

RESTORING: Final = "restoring"
FILES_MAX: Final = 16
RUN_BYTES: Final = 1024 * 1024
_SPARED: Final = frozenset({"lost+found"})
"""What a new file system has."""


@dataclass
class RestoredCluster:
    """What a restore came to."""

    cluster_id: str
    streams: int
    partitions: int
    """Replicas that were written."""
    size_bytes: int = 0


def restore_cluster(
    folder: BackupFolder,
    paths: Mapping[NodeId, Path],
    *,
    nodes: tuple[NodeId, ...] = (),
    cluster_id: str | None = None,
    keys: KeyRing | None = None,
) -> RestoredCluster:
    """Fill the data folders ``paths``, each of one of ``nodes`` (default: of those with a path).

    ``cluster_id``: of the new cluster; default: that of the backup. ``keys``: to what is encrypted
    in the backup; encrypted streams are written under the active one, which the nodes must have.
    All files are checked before anything is written.

    Raises InvalidRequest for a backup that never finished, folders that are in use, and encrypted
    streams without a key; CorruptFile, EncryptionKeyMissing, Unavailable.
    """
    nodes = tuple(sorted(nodes or paths))
    if strange := sorted(set(paths) - set(nodes)):
        raise InvalidRequest(f"node {strange[0]} has a folder, and is not one of {list(nodes)}")
    old = _image(folder)
    streams = _covered(folder, old)
    keys = keys or KeyRing()
    _check_keys(streams, keys)
    for path in paths.values():
        _check_free(path, folder)
    last_id = max((_check_pieces(folder, it, keys) for it in streams.values()), default=-1)
    cluster_id = cluster_id or old.cluster_id
    image = restored_image(old, nodes, cluster_id, folder.manifest, last_producer_id=last_id)
    placed = placements(old, nodes)
    done = RestoredCluster(cluster_id, len(streams), 0)
    for node_id, path in sorted(paths.items()):
        kept = [tp for tp, replicas in placed.items() if node_id in replicas]
        with storage_errors(str(path)):
            # A stream may get more partitions later, whose first records no group must skip.
            ends = Ends(streams.values(), absent_end=0)
            data_dir = _NewDataDir(folder, path, keys, ends)
            data_dir.begin()
            for tp in kept:
                incarnation = image.stream(tp.stream).partition(tp.partition).incarnation(node_id)
                data_dir.write_partition(streams[tp.stream], tp, incarnation)
            data_dir.finish(node_id, image)
        done.partitions += len(kept)
        done.size_bytes += data_dir.size_bytes
    return done


def _image(folder: BackupFolder) -> MetadataImage:
    image = image_in(folder)
    if image is None:
        raise InvalidRequest(
            f"{folder.path} was never finished: it has no metadata; single streams of it can be"
            " restored into a running cluster"
        )
    return image


def _covered(folder: BackupFolder, image: MetadataImage) -> dict[str, StreamBackup]:
    """Each stream of the metadata, with the partitions that it has there: a take that was interrupted
    has left the records of newer ones. Raises InvalidRequest where one is not here.
    """
    found = {}
    for name, stream in sorted(image.streams.items()):
        backup = folder.manifest.by_id(stream.stream_id)
        here = {it.number for it in backup.partitions} if backup is not None else set()
        missing = sorted(set(range(len(stream.partitions))) - here)
        if backup is None or missing:
            raise InvalidRequest(
                f"{folder.path} lacks partitions {missing} of {name}: a cluster of it would have"
                " lost them; take the backup again while its cluster is there"
            )
        known = tuple(it for it in backup.partitions if it.number < len(stream.partitions))
        found[name] = backup.model_copy(update={"partitions": known})
    return found


def _check_pieces(folder: BackupFolder, stream: StreamBackup, keys: KeyRing) -> int:
    """The highest producer id in any record: one may be newer than the metadata. -1: there is none.

    Raises CorruptFile, EncryptionKeyMissing, Unavailable.
    """
    return max(
        (
            check_piece(folder.partition(stream, partition.number) / piece.name, piece, keys)
            for partition in stream.partitions
            for piece in partition.pieces
        ),
        default=-1,
    )


def _check_keys(streams: Mapping[str, StreamBackup], keys: KeyRing) -> None:
    encrypted = [name for name, stream in streams.items() if stream.config.encrypted]
    if encrypted and keys.active is None:
        raise InvalidRequest(
            f"{encrypted[0]} is encrypted: name the key that the nodes will have (--config of one"
            " of them, or --key NAME=SOURCE); nothing was written"
        )


def _check_free(path: Path, folder: BackupFolder) -> None:
    with storage_errors(str(path)):
        names = {it.name for it in path.iterdir()} - _SPARED if path.exists() else set()
    if "node.json" in names:
        raise InvalidRequest(f"{path} is a node's folder already; nothing in it was touched")
    if names and RESTORING not in names:
        raise InvalidRequest(
            f"{path} is not empty (it holds {sorted(names)[0]}); name an empty folder"
        )
    if path.resolve().is_relative_to(folder.path.resolve()):
        raise InvalidRequest(f"{path} lies in the backup itself")


class _NewDataDir:
    """One node's folder in the making. What fails raises OSError or StreamlogError."""

    def __init__(self, backup: BackupFolder, path: Path, keys: KeyRing, ends: Ends) -> None:
        self.size_bytes = 0
        self._record_ends = ends
        self._backup = backup
        self._path = path
        self._disk = OsDisk()
        self._files = FilePool(self._disk, FILES_MAX, keys)
        self._ends: dict[LogId, int] = {}
        self._starts: dict[LogId, int] = {}

    def begin(self) -> None:
        """Mark it, and have it empty, whatever a run that was ended has left."""
        self._disk.make_directory(str(self._path))
        mark = f"{self._backup.manifest.backup_id}\n".encode()
        self._disk.write_small(str(self._path / RESTORING), mark)
        for entry in self._path.iterdir():
            if entry.name in _SPARED | {RESTORING}:
                continue
            if entry.is_dir():
                shutil.rmtree(entry)
            else:
                entry.unlink()

    def write_partition(self, stream: StreamBackup, tp: TopicPartition, incarnation: int) -> None:
        """As a follower would write what it fetches, epochs and all."""
        partition = stream.partition(tp.partition)
        assert partition is not None, "covered"
        where = self._path / "streams" / tp.stream / str(tp.partition)
        self._disk.make_directory(str(where))
        log_id = LogId(tp, stream.stream_id, incarnation)
        mark = encode_mark(stream.stream_id, incarnation)
        self._disk.write_small(str(where / METADATA_NAME), mark)
        log = PartitionLog.open(
            where,
            _settings(stream),
            disk=self._disk,
            files=self._files,
            key_scope=scope_of(stream.stream_id, tp.partition),
        )
        with contextlib.closing(log):
            self._write_log(log, stream, partition)
            self._ends[log_id] = log.log_end_offset
        self._starts[log_id] = min(partition.log_start_offset, partition.next_offset)
        self.size_bytes += partition.size_bytes

    def _write_log(
        self, log: PartitionLog, stream: StreamBackup, partition: PartitionBackup
    ) -> None:
        source = self._backup.partition(stream, partition.number)
        log.truncate_fully_to(partition.start_offset)
        waiting, has_control = bytearray(), False
        for piece in partition.pieces:
            if piece.next_offset <= partition.log_start_offset and piece != partition.pieces[-1]:
                log.truncate_fully_to(piece.next_offset)  # it was gone in the cluster
                continue
            for header, batch in batches_of(source / piece.name, piece, self._files.keys):
                has_control |= bool(header.attributes & (CONTROL | TRANSACTIONAL))
                waiting += batch
                if len(waiting) >= RUN_BYTES:
                    waiting = _append(log, waiting)
        _append(log, waiting)
        if log.log_end_offset != partition.next_offset:
            problem = f"ends at offset {log.log_end_offset}, not {partition.next_offset}"
            raise CorruptFile(f"{source}: {problem}")
        if stream.name == OFFSETS_STREAM:
            self._write_groups(log, stream, partition)
        ticket = log.begin_sync()
        if ticket is not None:
            ticket.run()
            log.finish_sync(ticket)
        if has_control:
            _note_control_batches(log)

    def _write_groups(
        self, log: PartitionLog, stream: StreamBackup, partition: PartitionBackup
    ) -> None:
        groups = groups_of(self._backup, stream, partition, self._files.keys)
        for batch in carried_on(
            groups,
            self._record_ends,
            offset=log.log_end_offset,
            leader_epoch=max(partition.last_epoch, 0),
            time_ms=self._backup.manifest.finished_ms or 0,
        ):
            _append(log, bytearray(batch))

    def finish(self, node_id: NodeId, image: MetadataImage) -> None:
        """From here on a node takes it for its own."""
        path, disk = self._path, self._disk
        OffsetCheckpoint(path / "high-watermark-checkpoint", disk).write(self._ends)
        OffsetCheckpoint(path / "recovery-point-offset-checkpoint", disk).write(self._ends)
        OffsetCheckpoint(path / "log-start-offset-checkpoint", disk).write(self._starts)
        _write_metadata(path / "metadata", image, disk)
        folder_id = directory_id(self._backup.manifest, image.cluster_id, node_id)
        content = node_file(image.cluster_id, node_id, folder_id, FORMAT_VERSION)
        disk.write_small(str(path / "node.json"), content)
        disk.unlink(str(path / RESTORING))
        disk.sync_directory(str(path))


def _settings(stream: StreamBackup) -> LogSettings:
    config, defaults = stream.config, LogSettings()
    return LogSettings(
        segment_bytes=config.segment_bytes or defaults.segment_bytes,
        segment_age_ms=config.segment_age_ms or defaults.segment_age_ms,
        index_interval_bytes=config.index_interval_bytes or defaults.index_interval_bytes,
        encrypts=config.encrypted,
    )


def _note_control_batches(log: PartitionLog) -> None:
    """A node reads none that lie below the recovery point: the files have them."""
    erasures, transactions = load(log, known_offset=0)
    erasures.commit(log.log_end_offset)
    transactions.commit(log.log_end_offset)
    beside, owner = log.beside, owner_of(log.beside.directory)
    beside.write(erasures_file.FILE_NAME, erasures_file.encode(erasures.snapshot(), owner))
    kept = transactions_file.encode(transactions.snapshot(), history_of(log), owner)
    beside.write(transactions_file.FILE_NAME, kept)


def _append(log: PartitionLog, records: bytearray) -> bytearray:
    position, whole = 0, memoryview(bytes(records))
    while position < len(whole):
        position += log.append_fetched(whole[position:])
    return bytearray()


def _write_metadata(where: Path, image: MetadataImage, disk: OsDisk) -> None:
    store = MetadataStore(where, image.cluster_id, disk=disk, files=FilePool(disk, FILES_MAX))
    store.open()
    with contextlib.closing(store):
        store.install_snapshot(snapshot_id(image), encode_snapshot(image))
        store.checkpoint(image.offset)
