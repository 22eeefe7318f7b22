"""A led partition that takes messages of other streams: what is appended, and how far each origin has come.

**The place is in the log.** A mirror has come as far as its log: its end offset is the last sequence of its origin.
Of a source the log has the last record that it brought, with its sequence in a header. Both are written with the
records themselves, in one append; so a leader that takes over, wherever the one before it has stopped, goes on exactly
behind the last record that it has.

**Counters.** A stream of counters adds up what its sources' counters have come to (ADR-49), see ``counters``. What it
has taken from each is in the log, too, in the newest message of the counter.

**One leader.** Everything is appended by the leader of the partition in its leader epoch. Whether it leads is asked in
the same turn of the event loop in which it appends, and what a former leader has appended at the same time is cut off
with its epoch, as everything that it has not committed.
"""

import asyncio
from collections import deque
from collections.abc import Collection, Sequence
from typing import Final

from streamlog.client.reader import open_batch
from streamlog.clock import wall_ms
from streamlog.errors import InvalidRequest, NotLeader, OffsetOutOfRange, StreamlogError
from streamlog.ingest.admission import counters
from streamlog.ingest.admission.counters import NOT_KNOWN, CounterTotals
from streamlog.ingest.admission.refusal import PublishRefusal
from streamlog.ingest.admission.subject_sequences import SubjectSequences
from streamlog.jetstream.mirroring.origin_batches import (
    KEY_HEADER,
    SOURCE_HEADER,
    SourcePlace,
    first_gap,
    mirrored_batches,
    places_batch,
    source_place,
    sourced_headers,
)
from streamlog.jetstream.mirroring.origin_reader import OriginMessage
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.metadata.stream.stream_origin import StreamOrigin
from streamlog.metadata.stream.subject_transform import SubjectTransform
from streamlog.partition.deletes.discard_new import check_room
from streamlog.partition.partition import Partition
from streamlog.record.batch import PUBLISHED, batches, read_header
from streamlog.record.codec import RecordRun, decode_records
from streamlog.record.compacted import is_gap
from streamlog.record.compiled.keys import murmur2
from streamlog.record.compression import Compression
from streamlog.record.erasure import erased_by
from streamlog.record.offset_set import OffsetSet
from streamlog.record.published import asked

PENDING_BYTES_MAX: Final = 8 * 1024 * 1024
"""Appended and not committed; then the next ones wait."""
RUN_BYTES: Final = 512 * 1024
PLACES_EVERY: Final = 20_000
"""Offsets from one record of places to the next."""
SCAN_OFFSETS: Final = 1_000
"""The first step back, when the last record of each source is looked for; each further one is twice as long."""
SCAN_OFFSETS_MAX: Final = 200_000
READ_BYTES: Final = 4 * 1024 * 1024
KNOWN_LOOK_S: Final = 0.05
"""How soon the counters of the log are looked for again, while its subjects are read."""


class _FedAppend:
    """Of one append. An ``Acknowledgement``."""

    __slots__ = ("_fed", "size_bytes")

    def __init__(self, fed: "FedPartition", size_bytes: int) -> None:
        self._fed = fed
        self.size_bytes = size_bytes

    def committed(self, _: int) -> None:
        self._fed.ended(self.size_bytes, None)

    def failed(self, error: StreamlogError) -> None:
        self._fed.ended(self.size_bytes, error)


class FedPartition:
    """In one leader epoch. On the event loop."""

    def __init__(self, partition: Partition, leader_epoch: int, config: StreamConfig) -> None:
        self._partition = partition
        self._leader_epoch = leader_epoch
        self._config = config
        self._transform = (
            SubjectTransform.parse(config.subject_transform) if config.subject_transform else None
        )
        self._pending = 0
        self._pending_bytes = 0
        self._error: StreamlogError | None = None
        self._changed = asyncio.Event()
        self._places = dict[str, SourcePlace]()
        """The last one of each source that the log has, of all that it ever had."""
        self._places_offsets = list[int]()
        """Of the newest record of places that is committed, and of those behind it."""
        self._unnamed = OffsetSet()
        """Of a mirror: what it leaves out, and no erasure names."""
        self._wanted_start = 0
        """Retention would have the log begin there."""

    def ended(self, size_bytes: int, error: StreamlogError | None) -> None:
        """Of an append."""
        self._pending -= 1
        self._pending_bytes -= size_bytes
        self._error = self._error or error
        self._changed.set()

    @property
    def partitions(self) -> int:
        """Of the stream."""
        return self._config.partitions

    @property
    def mirrored(self) -> int:
        """The last sequence of the origin that this mirror has, or that it knows to be missing there."""
        return self._partition.log_end_offset

    async def committed(self) -> None:
        """All that was appended is. Raises what has kept it from that."""
        await self._fewer_than(1, 1)

    async def all_committed(self) -> None:
        """All that the log has is, also what a leader before has appended. Raises NotLeader."""
        partition, end = self._partition, self._partition.log_end_offset
        changed = asyncio.Event()
        partition.add_watcher(changed.set)
        try:
            while self._leads and partition.high_watermark < end:
                changed.clear()
                await changed.wait()
        finally:
            partition.remove_watcher(changed.set)
        if not self._leads:
            raise NotLeader(f"{partition.tp} is not led in epoch {self._leader_epoch} any more")

    @property
    def _leads(self) -> bool:
        return self._partition.leads(self._leader_epoch)

    async def _fewer_than(self, count: int, size_bytes: int) -> None:
        while self._error is None and self._pending >= count and self._pending_bytes >= size_bytes:
            self._changed.clear()
            await self._changed.wait()
        if self._error is not None:
            raise self._error

    def _check(self) -> None:
        """Raises NotLeader, NotEnoughReplicas."""
        partition = self._partition
        config = partition.config
        same = (config.mirror, config.sources) == (self._config.mirror, self._config.sources)
        if not self._leads or not same:
            raise NotLeader(f"{partition.tp} is not led in epoch {self._leader_epoch} any more")
        partition.check_min_isr()

    def _commit(self, size_bytes: int) -> _FedAppend:
        self._pending += 1
        self._pending_bytes += size_bytes
        return _FedAppend(self, size_bytes)

    # A mirror

    async def mirror(self, messages: Sequence[OriginMessage]) -> None:
        """Append those that the log has not, each at its own offset. Raises StreamlogError."""
        await self._fewer_than(1, PENDING_BYTES_MAX)
        self._check()
        partition, config = self._partition, self._partition.config
        first = messages[0]
        if partition.log_end_offset == 0 and first.sequence > 1:
            self._append_batches(
                first_gap(
                    first.sequence - 1,
                    leader_epoch=self._leader_epoch,
                    timestamp_ms=first.timestamp_ms,
                )
            )
            await self.committed()
            await self.begin_at_first()  # before there are messages: no client sees them with a gap
            self._check()
        data = b"".join(
            mirrored_batches(
                [self._changed_subject(it) for it in messages],
                partition.log_end_offset,
                leader_epoch=self._leader_epoch,
                compression=Compression.named(config.compression),
                is_keyed=config.is_compacted,
                unnamed=self._unnamed,
            )
        )
        if data:
            self._append_batches(data)

    async def find_unnamed(self) -> None:
        """The gap at the log's end, as far as no erasure behind it names it: a leader before has come no further. What
        the log begins with needs no name. Raises StreamlogError.
        """
        partition, named = self._partition, OffsetSet()
        gaps, at = list[tuple[int, int]](), partition.log_end_offset
        while at > partition.log_start_offset:
            self._check_epoch()
            try:
                with await partition.read_appended(at - 1, 1) as part:
                    data = await asyncio.to_thread(part.read)
            except OffsetOutOfRange:  # it begins later by now
                return
            header, batch = next(iter(batches(data)))
            if is_gap(header):
                gaps.append((header.base_offset, at))
            elif header.is_control:
                named.update(erased_by(batch, header) or OffsetSet())
            else:
                for gap in gaps:
                    self._unnamed.update(OffsetSet.between_ends(*gap))
                self._unnamed.remove_all(named)
                return
            at = header.base_offset

    def _append_batches(self, data: bytes) -> None:
        ack = self._commit(len(data))
        try:
            self._partition.restore(memoryview(data), ack)
        except BaseException:
            self.ended(ack.size_bytes, None)
            raise

    async def begin_at_first(self) -> None:
        """A log begins with its first message, not with what its origin had no more when it was mirrored. Raises
        StreamlogError.
        """
        partition = self._partition
        start = first = partition.log_start_offset
        while first < partition.high_watermark:  # a gap batch reaches over 2**31 offsets at most
            try:
                with await partition.read(first, 1) as part:
                    data = await asyncio.to_thread(part.read)
            except OffsetOutOfRange:  # it begins later by now
                return
            header = read_header(data)
            if not is_gap(header):
                break
            first = header.next_offset
        if first > start:
            await partition.purge(first)

    # Sources

    async def source(self, origin: StreamOrigin, messages: Sequence[OriginMessage]) -> None:
        """Append those that belong into this partition. Raises StreamlogError."""
        if self._config.allow_counter:
            await self._source_counters(origin, messages)
            return
        run, size, last = RecordRun(attributes=PUBLISHED), 0, SourcePlace(origin.index_name, 0)
        for it in messages:
            changed = self._changed_subject(it)
            if not self._is_ours(changed):
                continue
            headers = sourced_headers(origin, changed)
            key = next((value for name, value in headers if name == KEY_HEADER), None)
            if key is None and self._config.is_compacted:
                key = changed.subject.encode()
            run.append(key, changed.data, headers)
            last = SourcePlace(origin.index_name, it.sequence, it.identity)
            size += changed.size_bytes
            if size >= RUN_BYTES:
                await self._append(run, last)
                size = 0
        if run.count:
            await self._append(run, last)

    async def _source_counters(
        self, origin: StreamOrigin, messages: Sequence[OriginMessage]
    ) -> None:
        """Each message adds to the counter of its subject what the origin's counter has come to since the last one.
        Between the look at a counter and the append there is no turn of the event loop, so that nothing comes between
        them; nor is there while messages of publishers are counted that are not appended. Raises StreamlogError.
        """
        waiting = deque(map(self._changed_subject, messages))
        while waiting:
            await self._fewer_than(1, PENDING_BYTES_MAX)
            await self.nothing_gathered()
            self._check()
            run = RecordRun(attributes=PUBLISHED)
            sequences = SubjectSequences(self._partition, run)
            totals = CounterTotals(self._partition, sequences)
            last, refusal = SourcePlace(origin.index_name, 0), None
            while waiting and run.size_bytes < RUN_BYTES and refusal is None:
                refusal = _count(totals, run, origin, waiting[0])
                if refusal is None:
                    counted = waiting.popleft()
                    last = SourcePlace(origin.index_name, counted.sequence, counted.identity)
            try:
                if run.count:
                    self._append_now(run, last)
            except BaseException:
                sequences.abort(self._partition.log_end_offset)
                raise
            if refusal is NOT_KNOWN:
                await asyncio.sleep(KNOWN_LOOK_S)
            elif refusal is not None:
                raise InvalidRequest(
                    f"{refusal.description}: message {waiting[0].sequence} of {origin.name}"
                )

    async def nothing_gathered(self) -> None:
        """What is gathered is appended within a turn of the event loop."""
        while True:
            admission = self._partition.expiry.admission
            if admission is None or not admission.gathers:
                return
            await asyncio.sleep(0)

    async def _append(self, run: RecordRun, last: SourcePlace) -> None:
        """The run is empty afterwards. ``last``: that of the last message in it."""
        await self._fewer_than(1, PENDING_BYTES_MAX)
        self._check()
        self._append_now(run, last)

    def _append_now(self, run: RecordRun, last: SourcePlace) -> None:
        check_room(self._partition, run.count, run.size_bytes)
        ack = self._commit(run.size_bytes)
        try:
            self._partition.append(run, ack, leader_epoch=self._leader_epoch)
        except BaseException:
            self.ended(ack.size_bytes, None)
            raise
        self._places[last.index_name] = last
        self.keep_places()

    @property
    def kept_offset(self) -> int | None:
        """As ``SourcePlaces`` has it. One that is not committed may yet be cut off."""
        known, high_watermark = self._places_offsets, self._partition.high_watermark
        while len(known) > 1 and known[1] < high_watermark:
            del known[0]
        return known[0] if known and known[0] < high_watermark else None

    def start_for(self, start: int) -> int:
        """As ``SourcePlaces`` has it. Once the places are behind what retention wanted to go, that goes: with
        this new record the segment of it would not be too old.
        """
        self._wanted_start = max(self._wanted_start, start)
        kept = self.kept_offset
        if kept is None:
            return self._partition.log_start_offset
        return min(self._wanted_start, kept)

    async def renew(self) -> None:
        """Append the places again, committed when it returns. Raises StreamlogError."""
        await self.nothing_gathered()
        self._check()
        self._append_places()
        await self.committed()

    def keep_places(self) -> None:
        """Append the places where the last segment has them not, so that retention may take all others; where they are
        far from the log's end, so that the next leader soon finds them; and where messages behind them are to go.
        Raises StreamlogError.
        """
        partition = self._partition
        if partition.log_end_offset <= partition.log_start_offset:
            return
        segment = partition.segment_of(partition.log_end_offset - 1)
        offset = self._places_offsets[-1] if self._places_offsets else -PLACES_EVERY
        if segment is None:
            return
        holds_up = offset < min(self._wanted_start, partition.messages_end)
        is_far = partition.log_end_offset - offset > PLACES_EVERY
        if offset < segment.base_offset or is_far or holds_up:
            self._check()
            self._append_places()

    def _append_places(self) -> None:
        partition = self._partition
        offset = partition.log_end_offset
        data = places_batch(
            self._places,
            base_offset=offset,
            leader_epoch=self._leader_epoch,
            timestamp_ms=wall_ms(),
        )
        self._append_batches(data)
        self._places_offsets.append(offset)

    def _changed_subject(self, message: OriginMessage) -> OriginMessage:
        made = self._transform(message.subject) if self._transform is not None else None
        return message._replace(subject=made) if made else message

    def _is_ours(self, message: OriginMessage) -> bool:
        config = self._config
        if config.partitions == 1:
            return True
        key = message.subject.encode()
        if config.partition_tokens:
            tokens = message.subject.split(".")
            chosen = [tokens[it - 1] for it in config.partition_tokens if it <= len(tokens)]
            key = ".".join(chosen).encode()
        else:
            own = _header(message.header_block, KEY_HEADER)
            key = key if own is None else own
        return (murmur2(key) & 0x7FFFFFFF) % config.partitions == self._partition.tp.partition

    async def source_positions(self, index_names: Collection[str]) -> dict[str, int]:
        """The last sequence of each source that the log has; of one that it has none of, nothing. Raises
        StreamlogError.

        The log is read backwards, in longer and longer steps, to the newest record of places. What is not committed
        yet counts: the leader will commit it.
        """
        found, partition = self._places, self._partition
        end, step = partition.log_end_offset, SCAN_OFFSETS
        while end > partition.log_start_offset and not self._places_offsets:
            start = max(end - step, partition.log_start_offset)
            for name, place in (await self._positions_in(start, end)).items():
                found.setdefault(name, place)
            end, step = start, min(step * 2, SCAN_OFFSETS_MAX)
        return {name: found[name].sequence for name in index_names if name in found}

    def identity(self, index_name: str) -> str:
        """Of the source that the position is of; empty: it is not known. ``source_positions`` have been read."""
        place = self._places.get(index_name)
        return "" if place is None else place.identity

    async def _positions_in(self, start: int, end: int) -> dict[str, SourcePlace]:
        """Of the records of ``[start, end)``."""
        found, offset = dict[str, SourcePlace](), start
        while offset < end:
            self._check_epoch()
            try:
                with await self._partition.read_appended(offset, READ_BYTES) as part:
                    data = await asyncio.to_thread(part.read)
            except OffsetOutOfRange:
                offset = max(offset + 1, self._partition.log_start_offset)
                continue
            before = offset
            for header, batch in batches(data):
                offset = header.next_offset
                if header.base_offset >= end:
                    break
                if not header.record_count or not (header.is_published or header.is_control):
                    continue  # a Kafka producer may give its records any header
                body = await open_batch(header, batch)
                if SOURCE_HEADER not in bytes(body):
                    continue
                for record in decode_records(body, header):
                    if start <= record.offset < end:
                        headers = record.headers if header.is_control else _judged(record.headers)
                        _note(found, headers)
                        if header.is_control:
                            self._places_offsets.append(record.offset)
            if offset == before:
                break
        return found

    def _check_epoch(self) -> None:
        if self._partition.leader_epoch != self._leader_epoch:
            raise NotLeader(f"{self._partition.tp} has another leader epoch")


def _count(
    totals: CounterTotals, run: RecordRun, origin: StreamOrigin, message: OriginMessage
) -> PublishRefusal | None:
    """Into the run, unless it is refused."""
    subject = message.subject.encode()
    headers = sourced_headers(origin, message)
    value = counters.total_of(message.data)
    if not any(name == counters.HEADER for name, _ in headers):
        return counters.MISSING
    if value is None:
        return counters.BROKEN
    refusal = totals.objection(subject)
    if refusal is not None:
        return refusal
    place, _, _ = origin.index_name.split(" ")
    counted = totals.count_sourced(subject, run.count, place, message.original_subject, value)
    if counted is None:
        return counters.BROKEN
    (body, sources), increment = counted
    made = {counters.HEADER: b"%d" % increment, counters.SOURCES_HEADER: sources}
    headers = [(name, made.pop(name, it)) for name, it in headers]
    run.append(None, body, [*headers, *made.items()])
    return None


def _judged(headers: Sequence[tuple[str, bytes | None]]) -> list[tuple[str, bytes | None]]:
    """Of a message: admission refuses that of a publisher by the first header of the name."""
    name = SOURCE_HEADER.decode()
    return [(name, asked(headers).get(name))]


def _note(found: dict[str, SourcePlace], headers: Sequence[tuple[str, bytes | None]]) -> None:
    for name, value in headers:
        if name == SOURCE_HEADER.decode() and value:
            place = source_place(value)
            if place is not None:
                found[place.index_name] = place


def _header(block: bytes, wanted: bytes) -> bytes | None:
    for line in block.split(b"\r\n")[1:]:
        name, colon, value = line.partition(b":")
        if colon and name == wanted:
            return value.lstrip(b" ")
    return None
