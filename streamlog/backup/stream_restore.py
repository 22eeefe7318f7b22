"""One stream out of a backup into a running cluster, with the offsets that its records had.

The stream is made read-only first, so that nothing comes between; its description says which backup
it is restored from. So a run that finds it half restored goes on where the last run ended. What was
configured is set at the end.

Kept are offsets, times, keys, values, headers, compression, and which messages were erased. Leader
epochs are a matter of the cluster that leads: the records get the new leaders'. Ids of idempotent
producers belong to the cluster that gave them, and are left out.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from crc32c import crc32c

from streamlog.backup.batch_file import batches_of, check_piece
from streamlog.backup.folder import BackupFolder
from streamlog.backup.manifest import PartitionBackup, StreamBackup
from streamlog.client.cluster import Cluster, with_retries
from streamlog.errors import (
    InvalidRequest,
    NotLeader,
    PartitionNotFound,
    StreamExists,
    StreamlogError,
    StreamNotFound,
    UnknownTopicId,
)
from streamlog.log.encryption.key_ring import KeyRing
from streamlog.metadata.stream.stream_config import StreamConfig, is_internal
from streamlog.model import TopicPartition
from streamlog.record.batch import CRC_POSITION, CRC_START, BatchHeader
from streamlog.record.compacted import GAP_OFFSETS_MAX, gap
from streamlog.record.compression import Buffer
from streamlog.wire import registry
from streamlog.wire.errors import check
from streamlog.wire.produce import ACKS_AS_STORED

REQUEST_BYTES: Final = 1024 * 1024
COMMIT_TIMEOUT_MS: Final = 30_000
PATIENCE_MS: Final = 60_000
T = TypeVar("T")

MARK: Final = "being restored from backup"

_PRODUCER: Final = slice(43, 57)
"""Producer id, epoch and base sequence in a batch."""
_NO_PRODUCER: Final = b"\xff" * 14


@dataclass
class Restored:
    """What a restore came to."""

    stream: str
    partitions: int = 0
    offsets: int = 0
    """Of all partitions together; those of records that were compacted away count."""
    resumed: bool = False
    """A run before had begun it."""


async def restore_stream(
    folder: BackupFolder,
    cluster: Cluster,
    name: str,
    *,
    target: str | None = None,
    subjects: tuple[str, ...] = (),
    replicas: int | None = None,
    whole: bool = False,
    keys: KeyRing | None = None,
) -> Restored:
    """Make the stream ``target`` (default: under its own name) of what the backup has of ``name``.

    ``subjects``: what it listens to afterwards; default: what it did, under another name that
    name alone. ``replicas``: default: as many as there were. ``whole``: also what retention or a
    purge had taken before the last backup. ``keys``: to what is encrypted in the backup; an
    encrypted stream comes to be under the nodes' own keys. Nothing is made before all of its files
    were checked.

    Raises InvalidRequest for what the backup has not whole, StreamExists, CorruptFile,
    EncryptionKeyMissing, and what the cluster answers.
    """
    backup = folder.manifest.stream(name)
    _check_whole(backup)
    keys = keys or KeyRing()
    for partition in backup.partitions:
        for piece in partition.pieces:
            path = folder.partition(backup, partition.number) / piece.name
            await asyncio.to_thread(check_piece, path, piece, keys)
    wanted = _wanted(backup, target, subjects, replicas)
    mark = f"{MARK} {folder.manifest.backup_id}, stream {backup.stream_id.hex}"
    restored = Restored(wanted.name, len(backup.partitions))
    is_new = await _begin(cluster, wanted, mark)
    restored.resumed = not is_new
    for partition in backup.partitions:
        tp = TopicPartition(wanted.name, partition.number)
        path = folder.partition(backup, partition.number)
        restored.offsets += await _restore(
            cluster,
            tp,
            path,
            partition,
            keys,
            whole=whole,
            is_new=is_new,
            origin=wanted.first_offset,
        )
    await _operate(cluster, "streams.replace", name=wanted.name, config=_shown(wanted))
    return restored


def _check_whole(backup: StreamBackup) -> None:
    if is_internal(backup.name):
        raise InvalidRequest(
            f"{backup.name} is the nodes' own stream; it is restored with a whole cluster only"
        )
    if backup.missing:
        raise InvalidRequest(
            f"the backup lacks partitions {backup.missing} of {backup.name}: it was not finished;"
            " take it again while the cluster is there"
        )


def _wanted(
    backup: StreamBackup, target: str | None, subjects: tuple[str, ...], replicas: int | None
) -> StreamConfig:
    changes: dict[str, object] = {}
    if target not in (None, backup.name):  # what leads from subject to subject is the old one's
        changes = {"name": target, "subjects": (), "subject_transform": "", "republish": ""}
    if subjects:
        changes["subjects"] = subjects
    if replicas is not None:
        changes["replicas"] = replicas
    if backup.config.retention == "interest":  # its consumers are not restored: nothing would stay
        changes["retention"] = "limits"
    return backup.config.changed(**changes) if changes else backup.config


async def _begin(cluster: Cluster, wanted: StreamConfig, mark: str) -> bool:
    """Have the stream there, and read-only; whether it is new, and not of an earlier run."""
    blank = wanted.changed(
        description=mark, readonly=True, sealed=False, republish="", retention_bytes=-1,
        retention_messages=-1, retention_ms=-1, max_messages_per_subject=-1,
        discard="old", discard_new_per_subject=False, cleanup_policy="delete", allow_ttl=False,
        allow_rollup=False, deny_purge=False, subject_delete_marker_ttl_ms=-1,
    )  # fmt: skip
    try:
        made = await _operate(cluster, "streams.create", config=_shown(blank))
    except StreamExists:
        raise StreamExists(
            f"there is a stream {wanted.name!r} already; restore under another name (--as), or"
            " remove it first"
        ) from None
    cluster.forget(wanted.name)  # a stream of before may have had the name
    return bool(made["created"])


def _shown(config: StreamConfig) -> dict[str, Any]:
    return config.model_dump(mode="json")


async def _restore(
    cluster: Cluster,
    tp: TopicPartition,
    path: Path,
    backup: PartitionBackup,
    keys: KeyRing,
    *,
    whole: bool,
    is_new: bool,
    origin: int,
) -> int:
    """How many offsets there are to it; what is there already is not sent again. ``origin``: where
    the new stream begins.
    """
    start = backup.start_offset if whole else max(backup.start_offset, backup.log_start_offset)
    end = (
        origin
        if is_new
        else await _eventually(cluster, tp, lambda: cluster.latest_offset(tp, committed=False))
    )
    first = next((it.base_offset for it in backup.pieces if it.next_offset > start), start)
    requests = _requests(_batches(path, backup, keys, range(origin, first), end))
    # In a thread: batches are read by the log's own scan, which knows no event loop.
    while waiting := await asyncio.to_thread(next, requests, b""):
        await _send(cluster, tp, waiting)
    if start:
        await _forget_below(cluster, tp, start)
    return backup.next_offset - start


def _batches(
    path: Path, backup: PartitionBackup, keys: KeyRing, gone: range, end: int
) -> Iterator[Buffer]:
    """What is to follow at ``end``: first gaps for what is ``gone``, then what the files have."""
    epoch, start = 0, gone.stop
    for base in range(gone.start, start, GAP_OFFSETS_MAX):
        stop = min(start, base + GAP_OFFSETS_MAX)
        if stop > end:
            yield gap(base, stop, leader_epoch=epoch, max_timestamp_ms=0)
    for piece in backup.pieces:
        if piece.next_offset <= max(start, end):
            continue
        for header, batch in batches_of(path / piece.name, piece, keys):
            if header.next_offset > end:
                yield _without_producer(header, batch)


def _requests(found: Iterator[Buffer]) -> Iterator[bytes]:
    waiting = bytearray()
    for batch in found:
        if waiting and len(waiting) + len(batch) > REQUEST_BYTES:
            yield bytes(waiting)
            waiting.clear()
        waiting += batch
    if waiting:
        yield bytes(waiting)


def _without_producer(header: BatchHeader, batch: Buffer) -> Buffer:
    if header.producer_id < 0:
        return batch
    changed = bytearray(batch)
    changed[_PRODUCER] = _NO_PRODUCER
    crc = crc32c(memoryview(changed)[CRC_START:])
    changed[CRC_POSITION:CRC_START] = crc.to_bytes(4, "big")
    return bytes(changed)


async def _send(cluster: Cluster, tp: TopicPartition, records: bytes) -> None:
    async def send() -> None:
        node, _ = await cluster.leader(tp)
        topic = await cluster.topic(tp.stream)
        data = {
            "name": tp.stream,
            "topic_id": topic.topic_id,
            "partition_data": [{"index": tp.partition, "records": records}],
        }
        request = {
            "transactional_id": None,
            "acks": ACKS_AS_STORED,
            "timeout": COMMIT_TIMEOUT_MS,
            "topic_data": [data],
        }
        try:
            answer = await cluster.ask(node, registry.PRODUCE, request)
            (result,) = answer["responses"][0]["partition_responses"]
            about = str(tp) if not result.get("error_message") else result["error_message"]
            check(result["error_code"], about)
        except StreamlogError:
            cluster.forget(tp.stream)
            raise

    await _eventually(cluster, tp, send)


async def _forget_below(cluster: Cluster, tp: TopicPartition, offset: int) -> None:
    """The log is to begin where it did."""

    async def ask() -> None:
        node, _ = await cluster.leader(tp)
        asked = {"partition_index": tp.partition, "offset": offset}
        request = {
            "topics": [{"name": tp.stream, "partitions": [asked]}],
            "timeout": COMMIT_TIMEOUT_MS,
        }
        answer = await cluster.ask(node, registry.DELETE_RECORDS, request)
        check(answer["topics"][0]["partitions"][0]["error_code"], str(tp))

    await _eventually(cluster, tp, ask)


async def _eventually(cluster: Cluster, tp: TopicPartition, ask: Callable[[], Awaitable[T]]) -> T:
    """Nodes hear of a new stream one after the other, and of an old one's end."""

    async def asked() -> T:
        try:
            return await ask()
        except (StreamNotFound, PartitionNotFound, UnknownTopicId) as error:
            cluster.forget(tp.stream)
            raise NotLeader(str(error)) from error

    return await with_retries(asked, PATIENCE_MS, about=str(tp))


async def _operate(cluster: Cluster, operation: str, **arguments: Any) -> dict[str, Any]:
    """Those that are asked for here may be asked for twice."""

    async def asked() -> dict[str, Any]:
        found = await cluster.operate(operation, arguments, timeout_ms=2 * PATIENCE_MS)
        return dict(found)

    return await with_retries(asked, PATIENCE_MS)
