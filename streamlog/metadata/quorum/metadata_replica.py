"""One member of the metadata quorum: it decides as the controller, and carries the effects of the
Raft core out on the store, in order.

No asyncio, no clock. ``handle``, ``decide`` and ``install`` are generators: they yield what their
driver must do before it asks for the next one, a blocking call or something for others. What a
blocking call raises is thrown into them. The node's shell runs blocking calls in a worker thread; a
simulation runs them on a simulated disk.

Invariants: ``image`` is all that is committed, as far as it is known; ``newest`` is all that is in
the log. The images in between wait in ``_uncommitted``. A decision in ``_pending`` is answered once:
when what it was decided for is committed, or when that is not known here any more. A decision that
did not get into the log is refused before anything else is decided: later records take its offsets,
and their commit says nothing about it.
"""

import logging
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final
from uuid import UUID, uuid4

from streamlog.condition import CORRECT_THEN_RESTART, CRITICAL, Condition
from streamlog.errors import (
    BrokenInvariant,
    CorruptBatch,
    CorruptData,
    CorruptFile,
    InvalidRequest,
    NoController,
    Overloaded,
    RequestTimedOut,
    StorageFull,
    StreamlogError,
)
from streamlog.metadata.commands import Granted
from streamlog.metadata.controller import Decision, batches, begin_log
from streamlog.metadata.image import records as facts
from streamlog.metadata.image.feature_level import (
    LEVEL_MAX,
    check_encryptable,
    check_tierable,
    check_writable,
)
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.image.records import MetadataRecord
from streamlog.metadata.quorum.quorum_state_file import StoredVote
from streamlog.metadata.quorum.store import SNAPSHOT_DAMAGED, MetadataStore, StoredBatch, first_vote
from streamlog.metadata.quorum.voter_sets import first_voters
from streamlog.model import NodeId
from streamlog.raft import events as raft
from streamlog.raft.messages import FetchAnswer, RaftFetchRequest, SnapshotId
from streamlog.raft.node import RaftNode, RaftSettings
from streamlog.raft.voters import ReplicaKey, VoterSet

logger = logging.getLogger(__name__)

METADATA_NOT_READ: Final = Condition(
    "SL-0121",
    "metadata not read",
    CORRECT_THEN_RESTART,
    meaning="The metadata log could not be read for a node that asked for it.",
    severity=CRITICAL,
)
METADATA_NOT_WRITTEN: Final = Condition(
    "SL-0122",
    "metadata not written",
    CORRECT_THEN_RESTART,
    meaning="The metadata log could not be written, for instance because the disk is full. A "
    "controller resigns.",
    severity=CRITICAL,
)

FETCH_BYTES: Final = 1 << 16
"""Of one answer: its batches are synced one by one, and nothing else is done meanwhile."""
RECORDS_PER_BATCH: Final = 1_000
FULL_DISK_PAUSE_MS: Final = 500
CONFIGURED: Final = -1
"""Where the voters of the configuration stand: before the log."""


@dataclass(frozen=True, slots=True)
class Blocking:
    """To be called, in a worker thread where there is a loop; what it raises is thrown back."""

    call: Callable[[], object]


@dataclass(frozen=True, slots=True)
class Proposal:
    """What is to be decided, on the newest image; the asker gets an ``Outcome``, once."""

    decide: Callable[[MetadataImage], Decision]
    """Raises what is to be answered instead."""
    asker: object


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a proposal came to: granted when it is committed, or why it is not."""

    asker: object
    result: Granted | StreamlogError


@dataclass(frozen=True, slots=True)
class Decided:
    """Records from ``offset`` up to ``end_offset``; none where both are the same."""

    offset: int
    end_offset: int
    result: dict[str, Any]
    asker: object


Outgoing = (
    Blocking
    | Outcome
    | raft.Send
    | raft.Reply
    | raft.InstallSnapshot
    | raft.Committed
    | raft.RoleChanged
    | raft.WentBack
)
Steps = Generator[Outgoing, None, None]


class MetadataReplica:
    """Single owner, not thread-safe; while a blocking call runs nothing else may be asked for."""

    def __init__(
        self,
        store: MetadataStore,
        *,
        node_id: NodeId,
        configured: VoterSet,
        voters_id: UUID,
        settings: RaftSettings,
        random: Callable[[], float],
        new_id: Callable[[], UUID] = uuid4,
        may_encrypt: bool = False,
        may_tier: bool = False,
    ) -> None:
        """``may_encrypt``: this node has the keys for encrypted streams; ``may_tier``: an object store."""
        self.store = store
        self.raft: RaftNode
        """There from ``open`` on."""
        self.image: MetadataImage
        self.deleted: set[UUID] = set()
        """Streams that were deleted in this run's image: their folders may still lie around."""
        self._node_id = node_id
        self.configured = configured
        self._voters_id = voters_id
        self._settings = settings
        self._random = random
        self._new_id = new_id
        self._may_encrypt = may_encrypt
        self._may_tier = may_tier
        self._pending: deque[Decided] = deque()
        """By offset. What ends beyond the log is about to be written."""
        self._begun_epoch = 0
        """The last one in which this node has written the leader's first records."""
        self._uncommitted: deque[MetadataImage] = deque()
        self._voters: list[tuple[int, VoterSet]] = [(CONFIGURED, configured)]
        """With the offset of the record that names them; the last ones hold."""
        self._fetches: dict[raft.Token, RaftFetchRequest] = {}
        """Those that wait for an answer."""
        self._full_until_ms: int | None = None
        """What was fetched could not be written; it is fetched again then."""

    @property
    def newest(self) -> MetadataImage:
        return self._uncommitted[-1] if self._uncommitted else self.image

    @property
    def voters(self) -> VoterSet:
        return self._voters[-1][1]

    @property
    def key(self) -> ReplicaKey:
        assert self.store.vote is not None, "open comes first"
        return ReplicaKey(self._node_id, self.store.vote.directory_id)

    @property
    def deadline_ms(self) -> int:
        """When a Tick is due at the latest."""
        if self._full_until_ms is not None:
            return min(self._full_until_ms, self.raft.deadline_ms)
        return self.raft.deadline_ms

    def open(self, now_ms: int) -> None:
        """Replay what is here; blocks. Raises CorruptData, StorageFailed."""
        try:
            self._open(now_ms)
        except CorruptData as error:
            if len(self.configured) == 1:
                raise
            raise CorruptData(
                f"{error}; move {self.store.directory} away: the node gets the metadata from the"
                " other voters, and votes again when it has it"
            ) from None

    def close(self) -> None:
        """Blocks. Also where it was never opened, or not to the end."""
        if hasattr(self, "raft"):
            self.store.checkpoint(self.image.offset)
        self.store.close()

    def _open(self, now_ms: int) -> None:
        store = self.store
        self.image = store.open()
        if self.image.voters:
            self._voters.append((self.image.offset - 1, self.image.voters))
        for batch in store.batches_from(self.image.offset):
            self._take_in(batch)
        self._commit(min(store.high_watermark, store.end_offset))
        self._check_vote()
        assert store.vote is not None, "checked"
        self.raft = RaftNode(
            self.key,
            store,
            epoch=store.vote.epoch,
            voted_for=store.vote.voted_for,
            voters=self.voters,
            voters_offset=self._voters[-1][0],
            voters_id=self._voters_id,
            high_watermark=self.image.offset,
            settings=self._settings,
            random=self._random,
            now_ms=now_ms,
            acquaintances=self.configured.ids,
        )

    def handle(self, event: raft.Event, now_ms: int, *, wall_ms: int) -> Steps:
        """Whatever comes of ``event``."""
        match event:
            case raft.Received(token, RaftFetchRequest() as request):
                self._fetches[token] = request
            case raft.Abandoned(token):
                self._fetches.pop(token, None)
            case raft.Tick() if self._full_until_ms is not None and now_ms >= self._full_until_ms:
                self._full_until_ms = None
                yield from self._run([raft.Synced(self.store.end_offset)], now_ms)
        yield from self._run([event], now_ms)
        if self.raft.role is raft.Role.LEADER and self.raft.epoch != self._begun_epoch:
            yield from self._begin_epoch(now_ms, wall_ms)

    def decide(
        self,
        proposals: Iterable[Proposal],
        clock_ms: Callable[[], int],
        wall_ms: Callable[[], int],
    ) -> Steps:
        """Decide one on top of the other, log what they come to, answer when it is committed.

        Outcomes: what ``Proposal.decide`` raises; NoController, Overloaded, StorageFull: nothing has
        been done; RequestTimedOut: it may be done or not.
        """
        if not self.raft.is_active:
            error = NoController("this node is not the controller")
            yield from [Outcome(proposal.asker, error) for proposal in proposals]
            return
        image, records = self.newest, list[MetadataRecord]()
        for proposal in proposals:
            try:
                decision = proposal.decide(image)
                check_writable(decision.records, image.level)
                if not self._may_encrypt:
                    check_encryptable(decision.records)
                if not self._may_tier:
                    check_tierable(decision.records)
            except StreamlogError as error:
                yield Outcome(proposal.asker, error)
                continue
            offset = image.offset
            if decision.records:
                image = image.apply_all(decision.records, offset=offset, epoch=self.raft.epoch)
                records += decision.records
            self._pending.append(Decided(offset, image.offset, decision.result, proposal.asker))
        try:
            for batch in batches(Decision(tuple(records)), RECORDS_PER_BATCH):
                yield from self._propose(batch, clock_ms(), wall_ms())
        except (NoController, InvalidRequest) as error:
            yield from self._refuse_unwritten(error)
        except (StorageFull, Overloaded) as error:
            logger.error(METADATA_NOT_WRITTEN, extra={"error": str(error)})
            yield from self._refuse_unwritten(error)
            # Others may have room; a voter by itself stays.
            yield from self._run([raft.Resign()], clock_ms())
        yield from self._commit(self.image.offset)

    def give_up(self, error: StreamlogError) -> list[Outcome]:
        """Of all that waits: whether it will be committed is not known here any more."""
        given_up = [Outcome(it.asker, error) for it in self._pending]
        self._pending.clear()
        return given_up

    def _refuse_unwritten(self, error: StreamlogError) -> list[Outcome]:
        """What is not in the log is not written any more."""
        refused: deque[Outcome] = deque()
        while self._pending and self._pending[-1].end_offset > self.store.end_offset:
            unwritten = self._pending.pop()
            is_torn = unwritten.offset < self.store.end_offset
            torn = RequestTimedOut(f"a part of it was written: {error}")
            refused.appendleft(Outcome(unwritten.asker, torn if is_torn else error))
        return list(refused)

    def _written(self, end_offset: int) -> list[Decided]:
        """Those decisions below, which wait no longer."""
        written: list[Decided] = []
        while self._pending and self._pending[0].end_offset <= end_offset:
            written.append(self._pending.popleft())
        return written

    def _begin_epoch(self, now_ms: int, wall_ms: int) -> Steps:
        """A new leader's first records: what was written before commits with them (Raft 5.4.2)."""
        self._begun_epoch = self.raft.epoch
        records: list[MetadataRecord] = [facts.QuorumLeader(node_id=self._node_id)]
        if not self.voters.is_recorded:
            records.append(first_voters(self.voters, self.raft.electors))
        if self.newest.offset == 0:  # no node has ever read anything of this cluster
            records.append(facts.FeatureLevelChanged(level=LEVEL_MAX))
        if self.newest.log is None:
            records.append(begin_log(self.newest, new_id=self._new_id(), now_ms=wall_ms))
        try:
            yield from self._propose(records, now_ms, wall_ms)
        except (StorageFull, Overloaded) as error:  # a leader that cannot begin makes way
            logger.error(METADATA_NOT_WRITTEN, extra={"error": str(error)})

    def _propose(self, records: Sequence[MetadataRecord], now_ms: int, wall_ms: int) -> Steps:
        """Write ``records`` as one batch of the leader's epoch; ``newest`` has them at once.

        NoController, InvalidRequest for voters; StorageFull or Overloaded, raised by the first
        call: nothing was kept. Whatever else is raised leaves the log, the images and the core
        disagreeing until the next start.
        """
        if self.raft.role is not raft.Role.LEADER:
            raise NoController("this node leads the metadata quorum no more")
        changes = [it.voter_set for it in records if isinstance(it, facts.VotersChanged)]
        for change in changes:
            self.raft.check_voters_change(change)
        if len(changes) > 1:
            raise InvalidRequest("voters change one at a time")
        store, epoch, offset = self.store, self.raft.epoch, self.store.end_offset
        yield Blocking(lambda: store.append(records, epoch, wall_ms))
        voters = self._take_in(StoredBatch(offset, epoch, tuple(records), wall_ms))
        yield from self._run([*voters, raft.Appended(store.end_offset)], now_ms)
        yield Blocking(store.sync)
        yield from self._run([raft.Synced(store.end_offset)], now_ms)

    def install(self, snapshot: SnapshotId, data: bytes | None, now_ms: int) -> Steps:
        """What ``InstallSnapshot`` asked for has come, as ``data`` or in pieces into the store; one that
        is damaged is asked for again.
        """
        installed: list[MetadataImage] = []

        def install() -> None:
            try:
                installed.append(self.store.install_snapshot(snapshot, data))
            except CorruptFile as error:  # before anything was changed
                logger.error(SNAPSHOT_DAMAGED, extra={"problem": str(error)})

        yield Blocking(install)
        if not installed:
            yield from self._run([raft.SnapshotFailed()], now_ms)
            return
        (image,) = installed
        if image.log == self.image.log:  # in another log it may be missing without a deletion
            self.deleted |= _gone(self.image, self.image.streams, image)
            for known in self._uncommitted:
                self.deleted |= _gone(known, known.touched, image)
        self.image = replace(image, parent_offset=-1)
        self._uncommitted.clear()
        self._voters = [(CONFIGURED, self.configured)]
        if image.voters:
            self._voters.append((image.offset - 1, image.voters))
        offset, voters = self._voters[-1]
        changed = raft.VotersCommitted(voters, offset)
        yield from self._run([changed, raft.SnapshotInstalled(snapshot)], now_ms)
        yield raft.Committed(image.offset)

    def snapshot(self, image: MetadataImage) -> Callable[[], None]:
        """A blocking call that keeps ``image``, on which all listeners have acted."""
        return lambda: self.store.add_snapshot(image)

    def _run(self, first: Iterable[raft.Event], now_ms: int) -> Steps:
        """Step after step, each with its effects, until nothing more comes of it."""
        events = deque(first)
        while events:
            for effect in self.raft.step(events.popleft(), now_ms):
                match effect:
                    case raft.SaveVote(epoch, voted_for):
                        vote = StoredVote(self.key.directory_id, epoch, voted_for)
                        yield Blocking(partial(self.store.save_vote, vote))
                    case raft.Append(records):
                        yield from self._append(memoryview(records), events, now_ms)
                    case raft.Truncate(end_offset):
                        yield Blocking(partial(self.store.truncate, end_offset))
                        events.extend(self._cut(end_offset))
                    case raft.Reply(token, FetchAnswer() as answer):
                        request = self._fetches.pop(token, None)
                        yield raft.Reply(token, self._with_records(request, answer))
                    case raft.Committed(high_watermark):
                        granted = self._commit(high_watermark)
                        yield effect
                        yield from granted
                    case raft.RoleChanged(role):
                        yield effect
                        if role is not raft.Role.LEADER:
                            text = "the controller changed; whether it was done is not known"
                            written = self._written(self.store.end_offset)
                            yield from (Outcome(it.asker, RequestTimedOut(text)) for it in written)
                    case _:
                        yield effect

    def _append(self, records: memoryview, events: deque[raft.Event], now_ms: int) -> Steps:
        batches: list[StoredBatch] = []

        def write() -> None:
            try:
                batches.extend(self.store.append_fetched(records, now_ms))
            except (StorageFull, Overloaded, CorruptBatch) as error:  # those before it are written
                logger.error(METADATA_NOT_WRITTEN, extra={"error": str(error)})
                self._full_until_ms = now_ms + FULL_DISK_PAUSE_MS

        yield Blocking(write)
        for batch in batches:
            events.extend(self._take_in(batch))
        if self._full_until_ms is None:
            events.append(raft.Synced(self.store.end_offset))

    def _with_records(self, request: RaftFetchRequest | None, answer: FetchAnswer) -> FetchAnswer:
        """Without records where they cannot be read just now: to be asked for again. To raise that
        would lose what is still to be done of the core's step.
        """
        if request is None or answer.end_offset <= request.offset:
            return answer
        try:
            records = self.store.read(request.offset, answer.end_offset, FETCH_BYTES)
        except Overloaded as error:
            logger.error(METADATA_NOT_READ, extra={"error": str(error)})
            return answer
        return replace(answer, records=records)

    def _take_in(self, batch: StoredBatch) -> list[raft.Event]:
        """``newest`` has it from now on; what that means to the core."""
        image = self.newest.apply_all(batch.records, offset=batch.base_offset, epoch=batch.epoch)
        self._uncommitted.append(image)
        if not any(isinstance(record, facts.VotersChanged) for record in batch.records):
            return []
        offset, voters = batch.end_offset - 1, image.voters
        self._voters.append((offset, voters))
        return [raft.VotersCommitted(voters, offset)]

    def _cut(self, end_offset: int) -> list[raft.Event]:
        if end_offset < self.image.offset:
            raise BrokenInvariant("what is committed stays")
        while self._uncommitted and self._uncommitted[-1].offset > end_offset:
            self._uncommitted.pop()
        if self._voters[-1][0] < end_offset:
            return []
        while self._voters[-1][0] >= end_offset:
            self._voters.pop()
        offset, voters = self._voters[-1]
        return [raft.VotersCommitted(voters, offset)]

    def _commit(self, high_watermark: int) -> list[Outcome]:
        """``image`` moves on, and still tells cheaply how it differs from the one before. What is
        granted by it.
        """
        old, touched = self.image, set[str]()
        while self._uncommitted and self._uncommitted[0].offset <= high_watermark:
            before, self.image = self.image, self._uncommitted.popleft()
            # One by one: a stream that was created and deleted since ``old`` is in neither end, and
            # an earlier run of this node may have made its folders.
            self.deleted |= _gone(before, self.image.touched, self.image)
            touched |= self.image.touched
        if self.image is not old:
            self.image = replace(self.image, parent_offset=old.offset, touched=frozenset(touched))
        while len(self._voters) > 1 and self._voters[1][0] < high_watermark:
            self._voters.pop(0)
        written = self._written(high_watermark)
        return [Outcome(it.asker, Granted(it.end_offset, it.result)) for it in written]

    def _check_vote(self) -> None:
        """A vote that is lost may be given twice; only a voter by itself can do without.

        Raises CorruptData.
        """
        store, alone = self.store, self.voters.ids == {self._node_id}
        if store.vote_damage and not alone:
            raise CorruptData(store.vote_damage)
        if store.vote is None:
            mine = self.voters.by_id.get(self._node_id) if alone else None
            known = mine.directory_id if mine else None
            store.save_vote(first_vote(known, last_epoch=store.last_epoch))


def _gone(old: MetadataImage, names: Iterable[str], new: MetadataImage) -> set[UUID]:
    """Which streams of these names were in ``old`` and are not in ``new``."""
    was = ((name, it) for name in names if (it := old.streams.get(name)) is not None)
    return {
        it.stream_id
        for name, it in was
        if (now := new.streams.get(name)) is None or now.stream_id != it.stream_id
    }
