"""The committed metadata log, for those on this node who want to know how the image came about."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

from streamlog.errors import CorruptFile, OffsetOutOfRange
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.quorum.store import (
    SNAPSHOT_DAMAGED,
    MetadataStore,
    StoredBatch,
    decode_batches,
)
from streamlog.raft.messages import SnapshotId

logger = logging.getLogger(__name__)

READ_BYTES: Final = 64 * 1024
"""Read at once, in the thread that writes the log; a batch that is larger comes whole."""

T = TypeVar("T")


class Reading(Protocol):
    """What is needed of ``metadata.quorum.raft_driver.RaftDriver``."""

    async def read(self, call: Callable[[], T]) -> T: ...


class MetadataHistory:
    """Read beside the quorum: the files in its thread, in turn; what they say in another one."""

    def __init__(
        self, quorum: Reading, store: MetadataStore, image: Callable[[], MetadataImage]
    ) -> None:
        """``image``: what the node acts on; nothing above it is told."""
        self._quorum = quorum
        self._store = store
        self._image = image

    @property
    def end(self) -> MetadataImage:
        """All of it, so far."""
        return self._image()

    async def begin(self, offset: int) -> MetadataImage:
        """The image from whose offset on the log is to be read by a node that knows all below
        ``offset``: the newest one that is not beyond it. Where the log was let go that follows from
        there, it is the oldest one that the log still follows, and what lies between is not to be
        had one by one any more. Raises StorageFailed.
        """
        end = self._image()
        if end.offset <= offset:
            return end
        start, snapshots = await self._quorum.read(self._held)
        if start == 0:
            snapshots.append(None)
        before = [it for it in snapshots if _offset(it) <= offset]
        after = [it for it in reversed(snapshots) if _offset(it) > offset]
        for snapshot in (*before, *after):
            if snapshot is None:
                return MetadataImage(end.cluster_id)
            image = await self._decoded(snapshot)
            if image is not None and image.offset >= start:
                return image
        return end

    async def read(self, offset: int) -> list[StoredBatch]:
        """Some of what was decided from ``offset`` on; nothing where there is no more so far.

        The first may be the rest of a batch. Raises OffsetOutOfRange where the log was let go,
        CorruptData, Unavailable.
        """
        end = self._image().offset
        if offset >= end:
            return []
        store = self._store
        data = await self._quorum.read(lambda: store.read(offset, end, READ_BYTES))
        where = str(store.directory)
        return await asyncio.to_thread(lambda: list(decode_batches(data, offset, where)))

    def _held(self) -> tuple[int, list[SnapshotId | None]]:
        """Where the log begins, and the snapshots, the newest first."""
        return self._store.start_offset, [*self._store.snapshots()]

    async def _decoded(self, snapshot: SnapshotId) -> MetadataImage | None:
        """None where it is gone, or damaged."""
        try:
            return await asyncio.to_thread(self._store.read_snapshot, snapshot)
        except OffsetOutOfRange:
            return None
        except CorruptFile as error:
            logger.error(SNAPSHOT_DAMAGED, extra={"problem": str(error)})
            return None


def _offset(snapshot: SnapshotId | None) -> int:
    return 0 if snapshot is None else snapshot.end_offset
