"""A tiered partition's log, read as one: what is below the local log start offset comes from the object store."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, Protocol

from streamlog.errors import (
    CorruptData,
    ObjectStoreUnavailable,
    OffsetOutOfRange,
    StreamlogError,
)
from streamlog.log.encryption.key_file import scope_of
from streamlog.log.leader_epochs import EpochStart, LeaderEpochs
from streamlog.log.log import NOT_TIERED, PartitionLog
from streamlog.log.segment.file_slice import FileSlice
from streamlog.log.segment.segment import Segment
from streamlog.log.segment.time_search import TimedOffset, first_record_since, latest_record
from streamlog.log.storage.disk import storage_errors
from streamlog.log.storage.file_pool import FilePool
from streamlog.log.transactions.transactions import AbortedTransaction
from streamlog.metadata.image.image_types import TierImage
from streamlog.model import NO_EPOCH, EpochEnd, TopicPartition
from streamlog.partition.reader import Reader
from streamlog.partition.tiering.segment_history import PRODUCERS_PART
from streamlog.partition.tiering.tier_plan import parted_below
from streamlog.tier.manifest import TieredSegment, TierManifest
from streamlog.tier.object_layout import ManifestVersion, PartitionPrefix
from streamlog.tier.segment_transactions import (
    TRANSACTIONS_PART,
    SegmentTransactions,
    decode_transactions,
)

OPEN_SEGMENTS_MAX: Final = 8
"""Of a partition, of which it is remembered what they say of transactions."""
READY_MAX: Final = 1_000
"""Offsets of a partition that fetches have asked for and not read yet."""
PARTS_AT_ONCE: Final = 8
"""Requests for what segments say of producers."""


class PinnedSegment(Protocol):
    """``tier.segment_cache.CachedSegment``."""

    stem_path: str

    def opened(self, pool: FilePool, interval_bytes: int) -> Segment: ...
    async def prepare(self, offset: int, max_bytes: int) -> None: ...
    async def prepare_all(self) -> None: ...
    def part(self, name: str) -> bytes: ...


class TierStorage(Protocol):
    """The object store and the local cache, as reads need them. Raises ObjectStoreUnavailable, CorruptData, Overloaded,
    StorageFailed.
    """

    async def read_manifest(
        self, place: PartitionPrefix, version: ManifestVersion
    ) -> TierManifest: ...
    def is_whole(self, segment: TieredSegment) -> bool:
        """All of it is in the cache."""

    async def pin(
        self,
        place: PartitionPrefix,
        segment: TieredSegment,
        following: TieredSegment | None = None,
    ) -> PinnedSegment:
        """In the cache, until ``unpin``; its bytes come when they are prepared. ``following``: what a reader will want
        after it.
        """

    def unpin(self, pinned: PinnedSegment) -> None: ...
    async def read_part(self, place: PartitionPrefix, segment: TieredSegment, name: str) -> bytes:
        """b"" where its object has none of that name."""


@dataclass(frozen=True, slots=True)
class TierContext:
    """What all tiered partitions of a node share."""

    cluster_id: str
    storage: TierStorage
    files: FilePool
    """Of the cache."""
    want: "Callable[[TieredLog, int, int, Callable[[], None]], None]"
    """Has what a read of so many bytes from an offset on needs fetched soon; see ``ColdReads.want``."""


class TierLag(NamedTuple):
    """How far the store is behind the closed segments of a partition."""

    offsets: int
    segments: int
    size_bytes: int


NO_LAG: Final = TierLag(0, 0, 0)


class _OpenSegment(NamedTuple):
    segment: Segment
    transactions: SegmentTransactions


class TieredLog:
    """On the event loop. Of a stream that is not tiered it is the local log alone."""

    __slots__ = (
        "_context", "_log", "_manifest", "_open", "_reader", "_ready", "_start_time", "_workers", "image", "place",
        "tp",
    )  # fmt: skip

    def __init__(
        self,
        tp: TopicPartition,
        log: PartitionLog,
        reader: Reader,
        workers: Executor,
        *,
        place: PartitionPrefix | None = None,
        context: TierContext | None = None,
    ) -> None:
        """``context``: None on a node without an object store, which can read its own log alone."""
        self.tp = tp
        self.place = place
        self.image: TierImage | None = None
        """As the metadata say; None: nothing was ever in the store."""
        self._log = log
        self._reader = reader
        self._workers = workers
        self._context = context
        self._manifest: TierManifest | None = None
        """The last one that was read."""
        self._ready: dict[int, StreamlogError | None] = {}
        """Offsets that were wanted and have come, or why they cannot, until they are read."""
        self._open: dict[str, _OpenSegment] = {}
        """By the name of their objects; the one that was used last is the last."""
        self._start_time: tuple[int, TimedOffset] | None = None
        """Of the first record of a log start."""

    # What there is

    def heard(self, image: TierImage | None) -> bool:
        """What the metadata say from now on; whether the partition begins elsewhere by that."""
        before, known = self.log_start_offset, self.image
        self.image = image
        if known is not None and (image is None or image.end_offset < known.end_offset):
            self._start_time = None  # an unclean election has cut it
        self._log.tier_start = NOT_TIERED if image is None else image.log_start_offset
        if image is not None and self._manifest is not None:
            first = image.log_start_offset
            gone = [name for name, it in self._open.items() if it.segment.next_offset <= first]
            for name in gone:
                del self._open[name]
        return self.log_start_offset != before

    @property
    def log_start_offset(self) -> int:
        """Of the partition."""
        local, image = self._log.log_start_offset, self.image
        if image is None or image.end_offset < local:  # what is between is nowhere
            return local
        return min(local, image.log_start_offset)

    @property
    def tiered_end_offset(self) -> int | None:
        """All from the log start up to there is in the store; None: nothing is."""
        image = self.image
        is_empty = image is None or image.log_start_offset >= image.end_offset
        return None if image is None or is_empty else image.end_offset

    @property
    def manifest(self) -> TierManifest | None:
        """The one that counts, if it was read."""
        manifest, image = self._manifest, self.image
        if manifest is None or image is None or manifest.manifest_version != image[:2]:
            return None
        return manifest

    def has(self, offset: int) -> bool:
        """It is read from the store."""
        return self.log_start_offset <= offset < self._log.log_start_offset

    @property
    def remote_bytes(self) -> int:
        """Of what is in the store alone, as far as the manifest was read; whole segments."""
        local, manifest = self._log.log_start_offset, self.manifest
        if manifest is None or self.image is None or self.image.log_start_offset >= local:
            return 0
        begun = manifest.segment_at(max(self.image.log_start_offset, manifest.log_start_offset))
        first = local if begun is None else begun.base_offset
        return manifest.bytes_from(first) - manifest.bytes_from(local)

    def lag(self) -> TierLag:
        """What is closed here and not in the store."""
        image, log = self.image, self._log
        end = log.log_start_offset if image is None else image.end_offset
        waiting = [it for it in log.segments.sealed() if it.next_offset > end]
        size_bytes = sum(it.size_bytes for it in waiting)
        return TierLag(max(0, log.sealed_end - end), len(waiting), size_bytes)

    async def read_manifest(self) -> TierManifest:
        """The one that counts now. Raises ObjectStoreUnavailable, CorruptData, OffsetOutOfRange where there is none."""
        while True:
            known = self.manifest
            if known is not None:
                return known
            image = self.image
            if image is None:
                raise OffsetOutOfRange(0, self._log.log_start_offset, self._log.log_end_offset)
            context, place = self._store()
            if not image.version:  # there is none yet
                self._manifest = TierManifest(
                    stream_id=place.stream.stream_id,
                    partition=place.number,
                    leader_epoch=image.leader_epoch,
                    log_start_offset=image.log_start_offset,
                )
                continue
            version = ManifestVersion(image.leader_epoch, image.version)
            read = await context.storage.read_manifest(place, version)
            if self.image is image:
                self._manifest = read

    async def own_manifest(self) -> TierManifest:
        """The same, for reads, here or by others. Raises ObjectStoreUnavailable while it has what was never before the
        local log, too: a leader that was elected unclean has yet to cut it, or this replica its log.
        """
        manifest, log = await self.read_manifest(), self._log
        parted = parted_below(
            manifest,
            log.epochs.entries,
            local_start=log.log_start_offset,
            log_end=log.log_end_offset,
        )
        if parted is not None:
            raise ObjectStoreUnavailable(
                f"{self.tp}: what the object store has from {parted} on is of another history than this log"
            )
        return manifest

    def wrote_manifest(self, manifest: TierManifest) -> None:
        """This node is its writer: it need not be read once it counts."""
        self._manifest = manifest

    def _store(self) -> tuple[TierContext, PartitionPrefix]:
        if self._context is None or self.place is None:
            raise ObjectStoreUnavailable(f"{self.tp}: this node has no object store: set tier.url")
        return self._context, self.place

    # Reading

    async def read(
        self,
        offset: int,
        max_bytes: int,
        upper: Callable[[], int],
        *,
        from_files_start: bool = False,
    ) -> FileSlice:
        """As ``Reader.read``, from wherever it is. Raises ObjectStoreUnavailable, too."""
        if self.image is None:
            return await self._reader.read(
                offset, max_bytes, upper, from_files_start=from_files_start
            )
        while True:
            if self.has(offset) and not (from_files_start and offset >= self._log.files_start):
                return await self._read_tiered(offset, max_bytes)
            try:
                return await self._reader.read(
                    offset, max_bytes, upper, from_files_start=from_files_start
                )
            except OffsetOutOfRange as error:
                if self.has(offset):  # it has gone here meanwhile
                    continue
                start = self.log_start_offset
                if error.log_start_offset <= start:
                    raise
                raise OffsetOutOfRange(offset, start, error.log_end_offset) from None

    def read_now(self, offset: int, max_bytes: int, upper: Callable[[], int]) -> FileSlice | None:
        """As ``Reader.read_now``; None where it is in the store."""
        return None if self.has(offset) else self._reader.read_now(offset, max_bytes, upper)

    def is_at_hand(
        self, offset: int, max_bytes: int, epoch: int, ready: Callable[[], None]
    ) -> bool:
        """A read of so many bytes, and ``epoch_end`` of an epoch, need not wait for the store. Else what they need is
        fetched, and ``ready`` is called when it has come. Raises why it did not come, Overloaded.
        """
        needs_epochs = epoch != NO_EPOCH and not self._knows(epoch)
        if not self.has(offset) and not needs_epochs:
            return True
        if offset in self._ready:
            error = self._ready.pop(offset)
            if error is not None:
                raise error
            return True
        context, _ = self._store()
        manifest = self.manifest
        if manifest is not None:
            segment = manifest.segment_at(offset)
            if not self.has(offset) or segment is None or context.storage.is_whole(segment):
                return True
        context.want(self, offset, max_bytes, ready)
        return False

    def came(self, offset: int, error: StreamlogError | None) -> None:
        """What was wanted is there, or cannot come."""
        while len(self._ready) >= READY_MAX:  # of fetches that did not come again
            del self._ready[next(iter(self._ready))]
        self._ready[offset] = error

    async def prepare(self, offset: int, max_bytes: int) -> PinnedSegment | None:
        """Have there what a read needs; None: it is not in the store, or not any more."""
        context, place = self._store()
        if self.image is None:
            return None
        tiered = (await self.own_manifest()).segment_at(offset)
        if tiered is None or not self.has(offset):
            return None
        pinned = await context.storage.pin(place, tiered, self._following(tiered))
        try:
            await pinned.prepare(offset, max_bytes)
        except BaseException:
            context.storage.unpin(pinned)
            raise
        return pinned

    def unpin(self, pinned: PinnedSegment) -> None:
        """What ``prepare`` has pinned."""
        context, _ = self._store()
        context.storage.unpin(pinned)

    def _following(self, tiered: TieredSegment) -> TieredSegment | None:
        """What a reader of it will want next; None: that is here, or not known."""
        manifest = self.manifest
        following = None if manifest is None else manifest.segment_after(tiered)
        is_remote = following is not None and self.has(following.base_offset)
        return following if is_remote else None

    async def _segment_at(self, offset: int) -> TieredSegment:
        manifest = await self.own_manifest()
        segment = manifest.segment_at(offset)
        if segment is None or not self.has(offset):
            start, end = self.log_start_offset, self._log.log_end_offset
            raise OffsetOutOfRange(offset, start, end)
        return segment

    async def _read_tiered(self, offset: int, max_bytes: int) -> FileSlice:
        self._reader.check_open()
        tiered = await self._segment_at(offset)
        context, place = self._store()
        try:
            pinned = await context.storage.pin(place, tiered, self._following(tiered))
            try:
                await pinned.prepare(offset, max_bytes)
                segment = (await self._opened(tiered, pinned)).segment
                with storage_errors(segment.path):
                    # What follows there is this log's to say, and it may have begun again meanwhile.
                    end = min(segment.next_offset, self._log.log_start_offset)
                    if offset >= end:
                        raise OffsetOutOfRange(
                            offset, self.log_start_offset, self._log.log_end_offset
                        )
                    part = segment.slice(offset, max_bytes, end)
                    self._reader.read_bytes += len(part)
            finally:
                context.storage.unpin(pinned)
        except CorruptData:
            if self.has(offset):
                raise
            # Retention was quicker, here or in the store.
            start, end = self.log_start_offset, self._log.log_end_offset
            raise OffsetOutOfRange(offset, start, end) from None
        self._reader.check_open()
        return await self._reader.decrypted(part) if part.is_encrypted else part

    async def _opened(self, tiered: TieredSegment, pinned: PinnedSegment) -> _OpenSegment:
        known = self._open.pop(tiered.name, None)
        if known is None or known.segment.stem_path != pinned.stem_path:
            known = await asyncio.get_running_loop().run_in_executor(
                self._workers, self._open_files, tiered, pinned
            )
            erased = known.transactions.erased
            if erased:
                self._log.erasures.erased.update(erased)
        self._open[tiered.name] = known
        while len(self._open) > OPEN_SEGMENTS_MAX:
            del self._open[next(iter(self._open))]
        return known

    def _open_files(self, tiered: TieredSegment, pinned: PinnedSegment) -> _OpenSegment:
        """Blocking. The cache has checked the bytes."""
        context, place = self._store()
        directory = pinned.stem_path.rpartition("/")[0]
        scope = scope_of(place.stream.stream_id, place.number)
        context.files.bind_keys(directory, scope)
        try:
            segment = pinned.opened(context.files, self._log.settings.index_interval_bytes)
        finally:
            context.files.release_keys(directory, scope)
        data = pinned.part(TRANSACTIONS_PART)
        transactions = SegmentTransactions()
        if data:
            transactions = decode_transactions(data, tiered.name)
        return _OpenSegment(segment, transactions)

    def aborted_between(self, start: int, end: int) -> list[AbortedTransaction] | None:
        """As ``Transactions.aborted_between``, of what was read from the store just before. None: it was not."""
        for it in reversed(self._open.values()):
            if it.segment.base_offset <= start < end <= it.segment.next_offset:
                return [
                    found
                    for found in it.transactions.aborted
                    if found.first_offset < end and found.last_offset >= start
                ]
        return None

    def first_aborted_at(self, marker_offset: int) -> int | None:
        """As ``Transactions.first_aborted_at``, of what was read from the store. From any thread."""
        for it in reversed(tuple(self._open.values())):
            if it.segment.base_offset <= marker_offset < it.segment.next_offset:
                return next(
                    (
                        found.first_offset
                        for found in it.transactions.aborted
                        if found.last_offset == marker_offset
                    ),
                    None,
                )
        return None

    # By time

    async def offset_for_timestamp(self, timestamp_ms: int) -> TimedOffset | None:
        """The first record of that time or later in what is in the store alone."""
        start, stop = self.log_start_offset, self._log.log_start_offset
        known = self._start_time
        if known is not None and known[0] == start and known[1][1] >= timestamp_ms:
            return known[1]
        asked = start
        while start < stop:
            manifest = await self.own_manifest()
            tiered = manifest.segment_at(start)
            if tiered is None:
                return None
            if tiered.max_timestamp_ms >= timestamp_ms:
                search = partial(_first_since, timestamp_ms=timestamp_ms, start=start, stop=stop)
                found = await self._search(tiered, search)
                if found is not None:
                    if found[0] == asked == self.log_start_offset:
                        self._start_time = asked, found
                    return found
            start = tiered.end_offset
        return None

    async def latest_timestamp(self, than_ms: int) -> TimedOffset | None:
        """The first record of the latest time in what is in the store alone, if that is later than ``than_ms``."""
        start, stop = self.log_start_offset, self._log.log_start_offset
        if start >= stop:
            return None
        manifest = await self.own_manifest()
        there = [it for it in manifest.segments if it.end_offset > start and it.base_offset < stop]
        best = max(there, key=lambda it: it.max_timestamp_ms, default=None)
        if best is None or best.max_timestamp_ms <= than_ms:
            return None
        return await self._search(
            best,
            lambda it: latest_record(
                [it], max(start, it.base_offset), min(it.next_offset, stop), verify=_is_verified
            ),
        )

    async def _search(
        self, tiered: TieredSegment, search: Callable[[Segment], TimedOffset | None]
    ) -> TimedOffset | None:
        context, place = self._store()
        pinned = await context.storage.pin(place, tiered)
        try:
            # Times may go back in a segment: then a search reads more than its indexes tell.
            await pinned.prepare_all()
            opened = await self._opened(tiered, pinned)
            with storage_errors(opened.segment.path):
                return await asyncio.get_running_loop().run_in_executor(
                    self._workers, search, opened.segment
                )
        finally:
            context.storage.unpin(pinned)

    # Of producers

    async def producers_since(self, since_ms: int) -> list[bytes]:
        """What the objects of segments that are younger say of their producers, as far as they are in the store alone;
        see ``segment_history``. In the order of the log.
        """
        start, stop = self.log_start_offset, self._log.log_start_offset
        if start >= stop:
            return []
        manifest = await self.own_manifest()
        context, place = self._store()
        young = [
            it
            for it in manifest.segments
            if it.base_offset < stop and it.end_offset > start and it.max_timestamp_ms >= since_ms
        ]
        found: list[bytes] = []
        for at in range(0, len(young), PARTS_AT_ONCE):
            reads = (
                context.storage.read_part(place, it, PRODUCERS_PART)
                for it in young[at : at + PARTS_AT_ONCE]
            )
            found += await asyncio.gather(*reads)
        return found

    # By leader epoch

    async def epoch_end(self, epoch: int, known: EpochEnd) -> EpochEnd:
        """Where ``epoch``, or the last one before it, ends, where the local log knows no more than ``known``."""
        if epoch == NO_EPOCH or self._knows(epoch):
            return known
        local = self._log.epochs.entries
        epochs = await self._epochs_below(local)
        found = LeaderEpochs(epochs).end_offset_for(epoch, self._log.log_end_offset)
        return known if found.epoch == NO_EPOCH else found

    def _knows(self, epoch: int) -> bool:
        """The local log does, or there is no more than that."""
        if self.log_start_offset == self._log.log_start_offset:
            return True
        local = self._log.epochs.entries
        return bool(local) and local[0].epoch <= epoch

    async def _epochs_below(self, local: Sequence[EpochStart]) -> list[EpochStart]:
        """Those in the store, and then those of the local log."""
        manifest, stop = await self.read_manifest(), self._log.log_start_offset
        first = local[0].epoch if local else None
        below = [
            it
            for it in manifest.leader_epochs
            if it.start_offset < stop and (first is None or it.epoch <= first)
        ]
        known = below[-1].epoch if below else NO_EPOCH
        return [*below, *(it for it in local if it.epoch > known)]


def _first_since(
    segment: Segment, *, timestamp_ms: int, start: int, stop: int
) -> TimedOffset | None:
    end = min(segment.next_offset, stop)
    return first_record_since([segment], timestamp_ms, start, end, verify=_is_verified)


def _is_verified(_: Segment) -> None:
    """The cache has compared it with its checksum."""
