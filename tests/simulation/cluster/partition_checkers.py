"""What replicated partitions promise, whatever happens. Told of every change; raises Violation."""

from bisect import bisect_left
from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID
from zlib import crc32

from streamlog.errors import CorruptData
from streamlog.log.log import PartitionLog
from streamlog.model import NO_EPOCH
from streamlog.partition.partition import Partition
from streamlog.record.batch import batches
from streamlog.record.codec import Record as StoredRecord
from streamlog.record.codec import iter_records
from streamlog.record.compacted import is_gap
from streamlog.record.erasure import erased_by
from streamlog.record.offset_set import OffsetSet
from streamlog.record.transaction_marker import marker_of
from tests.simulation.checkers import Violation

READ_BYTES = 1 << 20
GAP = "#gap"
MARKER = "~"
KINDS = (b"\0", b"\3")
"""Either begins the keys of what coordinators keep: Kafka's own, and those of share groups' states."""


class Replica(NamedTuple):
    """A partition of one stream, not merely of that name."""

    stream_id: UUID
    partition: int

    def __str__(self) -> str:
        return f"{self.stream_id.hex[-4:]}-{self.partition}"


class Record(NamedTuple):
    """A record as it is read back."""

    offset: int
    epoch: int
    message_id: str
    """Of an erasure, and of what a schedule has fired or a source has brought: its offset is in it, behind a ``#``. Of
    an offset that a mirror leaves out: ``GAP``. Of a transaction's marker: ``MARKER``, its offset, and how it ends
    whose; so, too, of what coordinators keep.
    """
    erases: bytes = b""
    """What an erasure has go: an ``OffsetSet``."""


class SingleLeaderPerEpoch:
    """One node leads in a leader epoch, in one of its lives."""

    def __init__(self) -> None:
        self._leaders: dict[tuple[Replica, int], tuple[int, int]] = {}

    def leads(self, replica: Replica, epoch: int, node_id: int, life: int) -> None:
        known = self._leaders.setdefault((replica, epoch), (node_id, life))
        if known != (node_id, life):
            raise Violation(
                f"{replica} is led in epoch {epoch} by node {known[0]} and by {node_id}"
            )


class LogMatching:
    """Records of one offset and one epoch are the same, wherever they are; and no log holds a
    record that was published to another stream, be it an earlier one of the same name.
    """

    def __init__(self) -> None:
        self.may_hold: Callable[[Replica, str], bool] = lambda _replica, _message_id: True
        """Whether the message was published while that stream was there."""
        self._records: dict[tuple[Replica, int, int], str] = {}

    def holds(self, replica: Replica, node_id: int, record: Record) -> None:
        if not self.may_hold(replica, record.message_id):
            raise Violation(
                f"{replica} on node {node_id}: {record.message_id} at {record.offset} was published"
                " to an earlier stream of that name"
            )
        key = (replica, record.offset, record.epoch)
        known = self._records.setdefault(key, record.message_id)
        if known != record.message_id:
            raise Violation(
                f"{replica} on node {node_id}: {record.message_id} at {record.offset} of epoch"
                f" {record.epoch}, and {known} elsewhere"
            )


class CommittedLog:
    """One partition's records below the highest high watermark that any replica has shown.

    Once here, a record is never lost and never another; and no message is here twice.
    """

    def __init__(self, replica: Replica) -> None:
        self.records: list[Record] = []
        """Dense from 0; those that are purged are kept here."""
        self._replica = replica
        self._offsets: dict[str, int] = {}
        self._epochs: list[int] = []
        """By offset, the leader epoch in which the record was committed. Never falls."""
        self.purge_asked = 0
        """Somebody has asked for a purge up to there: no log may begin later."""
        self.purges: list[tuple[int, int]] = []
        """Acknowledged ones: the offset, and the leader epoch in which it was asked for."""
        self.has_gaps = False
        """A mirror leaves out what its origin has not."""
        self.forgets_ids = False
        """What its publisher repeats may go meanwhile: then the next leader does not know its id."""
        self.messages_max: int | None = None
        """A limit of the stream: so many of the newest messages stay, unless a purge was asked for."""
        self.log_start = 0
        """The latest that any replica has shown."""
        self._allowed_start = 0
        """A log was allowed to begin there, before what is erased now did not count as a message any more."""
        self.erased = OffsetSet()
        """By erasures, and their own offsets: what need not be there."""
        self.expiring = OffsetSet()
        """Messages with a TTL: once they expire, a log may begin behind them without an erasure that names them."""

    @property
    def latest_start(self) -> int:
        """A log may begin there at the latest."""
        start, end = max(self.purge_asked, self._allowed_start), self.end_offset
        if self.messages_max is not None and end:
            start = max(start, self.erased.start_of_last_absent(self.messages_max, 0, end))
        gone = self.erased
        if self.expiring:
            gone = gone.copy()
            gone.update(self.expiring)
        return gone.first_absent(start)

    @property
    def purged(self) -> int:
        """All below is purged, and that was acknowledged."""
        return max((offset for offset, _ in self.purges), default=0)

    def purged_before(self, epoch: int) -> int:
        """As far as it was acknowledged in earlier leader epochs."""
        return max((offset for offset, asked in self.purges if asked < epoch), default=0)

    @property
    def end_offset(self) -> int:
        return len(self.records)

    def end_before(self, epoch: int) -> int:
        """Below it lies what was committed before the leader epoch, and that its leader must have.

        Who learns late that it was chosen may miss what a later leader has committed meanwhile.
        """
        return bisect_left(self._epochs, epoch)

    def agrees(self, node_id: int, record: Record, epoch: int) -> None:
        """``record`` is committed, says the node that leads or follows in the leader epoch."""
        if record.offset < self.end_offset:
            known = self.records[record.offset]
            if known != record:
                raise Violation(f"{self._replica} on node {node_id}: {record}, not {known}")
            return
        if record.offset > self.end_offset:
            raise Violation(f"{self._replica} on node {node_id} has nothing at {self.end_offset}")
        first = record.offset
        if record.message_id != GAP:
            first = self._offsets.setdefault(record.message_id, record.offset)
        if self.forgets_ids and first < self.log_start:
            first = self._offsets[record.message_id] = record.offset
        if first != record.offset:
            raise Violation(f"{self._replica}: {record.message_id} at {first}, {record.offset}")
        if record.message_id.startswith("#"):
            self._allowed_start = self.latest_start
        self.records.append(record)
        if record.message_id.startswith("#"):
            self.erased.update(OffsetSet.decode(record.erases))
            self.erased.add(record.offset)
        self._epochs.append(max(epoch, self._epochs[-1] if self._epochs else epoch))

    def holds(self, message_id: str, offset: int) -> bool:
        return offset < self.end_offset and self.records[offset].message_id == message_id

    def has(self, message_id: str) -> bool:
        return message_id in self._offsets

    def acknowledged(self, message_id: str, offset: int) -> None:
        if not self.holds(message_id, offset):
            raise Violation(f"{self._replica}: {message_id} is acknowledged at {offset}, wrongly")

    def check_order(self, names: set[str]) -> None:
        """Of a publisher that waits for each answer, the messages are in its order."""
        last: dict[str, int] = {}
        for record in self.records:
            name, _, number = record.message_id.partition(":")
            if name not in names or "#" in number:
                continue
            known = last.get(name, -1)
            is_stored_again = self.forgets_ids and int(number) == known
            if int(number) <= known and not is_stored_again:
                raise Violation(f"{self._replica}: {record.message_id} after {last[name]}")
            last[name] = int(number)

    def check_gaps(self, name: str) -> None:
        """Of a publisher that wants none, no message is missing between two."""
        ids = [it.message_id.partition(":") for it in self.records]
        numbers = [int(number) for of, _, number in ids if of == name]
        if numbers != list(range(len(numbers))):
            raise Violation(f"{self._replica}: {name}, who wants no gap, has {numbers}")


class PartitionCheckers:
    """All of them."""

    def __init__(self) -> None:
        self.leaders = SingleLeaderPerEpoch()
        self.matching = LogMatching()
        self.logs: dict[Replica, CommittedLog] = {}
        self.forgiven: set[Replica] = set()
        """Where the last in-sync replica has lost what it had, and has said so."""
        self.forgets_ids = False
        """See ``CommittedLog``."""
        self.messages_max: int | None = None
        """See ``CommittedLog``."""
        self.tiered_end: Callable[[Replica], int] = lambda _replica: 0
        """Up to where a log may let go of its records: the object store has them."""
        self.committed: Callable[[Replica, PartitionLog, int, int], None] = lambda *_: None
        """Told what is committed, as soon as any replica shows it: which log has it, from where to where."""

    def log_of(self, replica: Replica) -> CommittedLog:
        known = self.logs.get(replica)
        if known is None:
            known = self.logs[replica] = CommittedLog(replica)
            known.forgets_ids = self.forgets_ids
            known.messages_max = self.messages_max
        return known


class Watched:
    """One replica in one life of its node: what has been looked at."""

    def __init__(
        self, checkers: PartitionCheckers, replica: Replica, node_id: int, life: int
    ) -> None:
        self._checkers = checkers
        self._replica = replica
        self._node_id = node_id
        self._life = life
        self._committed = checkers.log_of(replica)
        self._end_offset = 0
        self._high_watermark = 0
        self._log_start = 0
        self._checked = 0
        """Below, what is committed has been compared."""
        self._leader_epoch = -1

    def look(self, partition: Partition) -> None:
        """After an event of its node."""
        state, log = partition.state, partition.state.log
        if partition.is_damaged:  # which it says; once it is mended, all is looked at again
            self._end_offset = self._high_watermark = self._checked = 0
            return
        leader_epoch = state.leader_epoch if state.progress is not None else -1
        if log.log_start_offset != self._log_start:
            self._look_at_start(log)
        if log.log_end_offset != self._end_offset:
            self._look_at_end(log)
        if leader_epoch != self._leader_epoch:
            self._leader_epoch = leader_epoch
            if leader_epoch >= 0:
                self._leads(log, leader_epoch)
        if state.high_watermark != self._high_watermark:
            self._look_at_high_watermark(log, state.high_watermark, state.leader_epoch)

    def compare(self, partition: Partition) -> None:
        """At the end, everything once more."""
        log = partition.state.log
        records = self._records_of(log, log.log_start_offset, log.log_end_offset)
        offsets = {record.offset for record in records}
        missing = set(range(log.log_start_offset, log.log_end_offset)) - offsets
        if any(offset not in self._committed.erased for offset in missing):
            raise Violation(f"the offsets of {self._replica} on node {self._node_id} have gaps")
        if log.log_start_offset < self._committed.purged:
            raise Violation(
                f"{self._replica} on node {self._node_id} begins at {log.log_start_offset}, and is"
                f" purged up to {self._committed.purged}"
            )
        for record in records:
            if record.offset < self._high_watermark:
                self._committed.agrees(self._node_id, record, partition.state.leader_epoch)

    def _look_at_start(self, log: PartitionLog) -> None:
        """A log begins where a purge or a limit has put it, and nowhere else."""
        self._log_start = log.log_start_offset
        self._committed.log_start = max(self._committed.log_start, self._log_start)
        if self._replica in self._checkers.forgiven:
            return
        tiered_end = self._checkers.tiered_end(self._replica)
        if self._log_start > max(self._committed.latest_start, tiered_end):
            raise Violation(
                f"{self._replica} on node {self._node_id} begins at {self._log_start}; purges and limits"
                f" allow {self._committed.latest_start}, and the object store has all up to {tiered_end}"
            )

    def _look_at_end(self, log: PartitionLog) -> None:
        """What is new, after a truncation too."""
        if self._replica in self._checkers.forgiven:
            return
        start = min(self._end_offset, log.log_end_offset)
        self._checked = min(self._checked, start)
        start = max(start, log.log_start_offset)
        for record in self._records_of(log, start, log.log_end_offset):
            self._checkers.matching.holds(self._replica, self._node_id, record)
        self._end_offset = log.log_end_offset

    def _leads(self, log: PartitionLog, epoch: int) -> None:
        if self._replica in self._checkers.forgiven:
            return
        self._checkers.leaders.leads(self._replica, epoch, self._node_id, self._life)
        end_offset = self._committed.end_before(epoch)
        if log.log_end_offset < end_offset:
            raise Violation(
                f"node {self._node_id} leads {self._replica} in epoch {epoch} with"
                f" {log.log_end_offset} of {end_offset} committed records"
            )
        purged = self._committed.purged_before(epoch)
        if log.log_start_offset < purged:
            raise Violation(
                f"node {self._node_id} leads {self._replica} in epoch {epoch} from"
                f" {log.log_start_offset} on, and a purge up to {purged} was acknowledged"
            )
        for record in self._records_of(log, log.log_start_offset, end_offset):
            self._committed.agrees(self._node_id, record, epoch)

    def _look_at_high_watermark(self, log: PartitionLog, high_watermark: int, epoch: int) -> None:
        if self._replica in self._checkers.forgiven:
            return
        if high_watermark < self._high_watermark:
            raise Violation(
                f"the high watermark of {self._replica} on node {self._node_id} falls from"
                f" {self._high_watermark} to {high_watermark}"
            )
        self._high_watermark = high_watermark
        self._commits(log, epoch)

    def _commits(self, log: PartitionLog, epoch: int) -> None:
        start = max(self._checked, log.log_start_offset)
        if self._high_watermark > log.log_end_offset:
            raise Violation(
                f"{self._replica} on node {self._node_id}: {self._high_watermark} is committed of"
                f" {log.log_end_offset}"
            )
        known = self._committed.end_offset
        for record in self._records_of(log, start, self._high_watermark):
            self._committed.agrees(self._node_id, record, epoch)
        self._checked = self._high_watermark
        if self._committed.end_offset > known:
            self._checkers.committed(self._replica, log, known, self._committed.end_offset)

    def _records_of(self, log: PartitionLog, offset: int, end_offset: int) -> list[Record]:
        return records_of(log, offset, end_offset, has_gaps=self._committed.has_gaps)


def records_of(
    log: PartitionLog, offset: int, end_offset: int, *, has_gaps: bool = False
) -> list[Record]:
    """From ``offset`` up to ``end_offset``; ``has_gaps``: also what it leaves out. Of damage a replica must know by
    itself.
    """
    try:
        return _read(log, offset, end_offset, has_gaps)
    except CorruptData as error:
        raise Violation(f"nobody knows of it: {error}") from None


def _read(log: PartitionLog, offset: int, end_offset: int, has_gaps: bool) -> list[Record]:
    found: list[Record] = []
    while offset < end_offset:
        with log.read(offset, READ_BYTES, log.log_end_offset) as piece:
            data = piece.read()
        if not data:
            raise Violation(f"nothing can be read at {offset}, below {end_offset}")
        more, offset = records_in(data, offset, end_offset, has_gaps=has_gaps)
        found += more
    return found


def records_in(
    data: bytes, offset: int, end_offset: int, *, has_gaps: bool = False
) -> tuple[list[Record], int]:
    """Those from ``offset`` up to ``end_offset`` in whole batches, and where these end."""
    found: list[Record] = []
    after = offset
    for header, batch in batches(memoryview(data)):
        erased = erased_by(batch, header)
        if erased is not None and offset <= header.base_offset < end_offset:
            place, epoch = header.base_offset, header.leader_epoch
            found.append(Record(place, epoch, f"#{place}", erased.encode()))
        marker = marker_of(batch, header)
        if marker is not None and offset <= header.base_offset < end_offset:
            place, epoch = header.base_offset, header.leader_epoch
            ends = f"{marker.producer_id}.{marker.producer_epoch} {marker.is_commit}"
            found.append(Record(place, epoch, f"{MARKER}{place} {ends}"))
        if has_gaps and is_gap(header):
            gap = range(max(offset, header.base_offset), min(header.next_offset, end_offset))
            found += [Record(it, NO_EPOCH, GAP) for it in gap]
        found += [
            Record(it.offset, header.leader_epoch, _id_of(it))
            for it in iter_records(batch)
            if offset <= it.offset < end_offset
        ]
        after = header.next_offset
    return found, after


def _id_of(record: StoredRecord) -> str:
    if (record.key or b"").startswith(KINDS):
        return f"{MARKER}{record.offset} {crc32(record.value or b''):x}"
    name = (record.value or b"").decode().rstrip(".")
    asks = dict(record.headers)
    if (brought := asks.get("Nats-Stream-Source")) is not None:
        return f"{name}#{record.offset} {brought.decode()}"
    if "Nats-Scheduler" not in asks or "Nats-Msg-Id" in asks:
        return name
    fired = b" ".join(asks[it] or b"" for it in ("Nats-Scheduler", "Nats-Schedule-Next"))
    return f"{name}#{record.offset} {fired.decode()}"


def replica_of(partition: Partition) -> Replica:
    """By the stream's id: another stream of the same name is another one."""
    return Replica(UUID(bytes=partition.topic_id), partition.tp.partition)
