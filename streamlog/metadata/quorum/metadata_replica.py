"""One member of the metadata quorum: the core's effects carried out on the store, in order.

No asyncio, no clock. ``handle`` and ``propose`` are generators: they yield what whoever drives them
must do before it asks for the next one, a blocking call or something for others. The node's shell
runs blocking calls in a worker thread; a simulation runs them on a simulated disk.

Invariant: ``image`` is all that is committed, as far as it is known; ``newest`` is all that is in
the log. The images in between wait in ``_uncommitted``.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

from streamlog.errors import (
    BrokenInvariant,
    CorruptBatch,
    CorruptData,
    CorruptFile,
    InvalidRequest,
    NoController,
    Overloaded,
    StorageFull,
)
from streamlog.metadata.image import records as facts
from streamlog.metadata.image.metadata_image import MetadataImage, StreamImage
from streamlog.metadata.image.records import MetadataRecord
from streamlog.metadata.image.snapshot import encode_snapshot, snapshot_id
from streamlog.metadata.quorum.store import MetadataStore, StoredBatch, first_vote
from streamlog.metadata.quorum.vote import StoredVote
from streamlog.model import NodeId
from streamlog.raft import events as raft
from streamlog.raft.messages import FetchAnswer, RaftFetchRequest, SnapshotId
from streamlog.raft.node import RaftNode, RaftSettings
from streamlog.raft.voters import ReplicaKey, VoterSet

logger = logging.getLogger(__name__)

FETCH_BYTES: Final = 1 << 16
"""Of one answer: its batches are synced one by one, and nothing else is done meanwhile."""
FULL_DISK_PAUSE_MS: Final = 500
CONFIGURED: Final = -1
"""Where the voters of the configuration stand: before the log."""


@dataclass(frozen=True, slots=True)
class Blocking:
    """To be called, in a worker thread where there is a loop; what it raises ends the handling."""

    call: Callable[[], object]


@dataclass(frozen=True, slots=True)
class Written:
    """What was proposed is in the log, which ends there; not yet synced."""

    end_offset: int


Outgoing = (
    Blocking
    | Written
    | raft.Send
    | raft.Reply
    | raft.InstallSnapshot
    | raft.Committed
    | raft.RoleChanged
    | raft.WentBack
)


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
    ) -> None:
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

    def handle(self, event: raft.Event, now_ms: int) -> Iterator[Outgoing]:
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

    def propose(
        self, records: Sequence[MetadataRecord], now_ms: int, *, wall_ms: int
    ) -> Iterator[Outgoing]:
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
        yield Written(store.end_offset)
        yield from self._run([*voters, raft.Appended(store.end_offset)], now_ms)
        yield Blocking(store.sync)
        yield from self._run([raft.Synced(store.end_offset)], now_ms)

    def install(self, snapshot: SnapshotId, data: bytes, now_ms: int) -> Iterator[Outgoing]:
        """What ``InstallSnapshot`` asked for has come; one that is damaged is asked for again."""
        installed: list[MetadataImage] = []

        def install() -> None:
            try:
                installed.append(self.store.install_snapshot(snapshot, data))
            except CorruptFile as error:  # before anything was changed
                logger.error("metadata snapshot damaged", extra={"problem": str(error)})

        yield Blocking(install)
        if not installed:
            yield from self._run([raft.SnapshotFailed()], now_ms)
            return
        (image,) = installed
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
        return lambda: self.store.add_snapshot(snapshot_id(image), encode_snapshot(image))

    def _run(self, first: Iterable[raft.Event], now_ms: int) -> Iterator[Outgoing]:
        """Step after step, until nothing more comes of it."""
        events = deque(first)
        while events:
            for effect in self.raft.step(events.popleft(), now_ms):
                yield from self._carry_out(effect, events, now_ms)

    def _carry_out(
        self, effect: raft.Effect, events: deque[raft.Event], now_ms: int
    ) -> Iterator[Outgoing]:
        match effect:
            case raft.SaveVote(epoch, voted_for):
                vote = StoredVote(self.key.directory_id, epoch, voted_for)
                yield Blocking(lambda: self.store.save_vote(vote))
            case raft.Append(records):
                yield from self._append(memoryview(records), events, now_ms)
            case raft.Truncate(end_offset):
                yield Blocking(lambda: self.store.truncate(end_offset))
                events.extend(self._cut(end_offset))
            case raft.Reply(token, FetchAnswer() as answer):
                yield raft.Reply(token, self._with_records(self._fetches.pop(token, None), answer))
            case raft.Committed(high_watermark):
                self._commit(high_watermark)
                yield effect
            case _:
                yield effect

    def _append(
        self, records: memoryview, events: deque[raft.Event], now_ms: int
    ) -> Iterator[Outgoing]:
        batches: list[StoredBatch] = []

        def write() -> None:
            try:
                batches.extend(self.store.append_fetched(records, now_ms))
            except (StorageFull, Overloaded, CorruptBatch) as error:  # those before it are written
                logger.error("metadata not written", extra={"error": str(error)})
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
            logger.error("metadata not read", extra={"error": str(error)})
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

    def _commit(self, high_watermark: int) -> None:
        """``image`` moves on, and still tells cheaply how it differs from the one before."""
        old, touched = self.image, set[str]()
        while self._uncommitted and self._uncommitted[0].offset <= high_watermark:
            self.image = self._uncommitted.popleft()
            touched |= self.image.touched
        if self.image is not old:
            self.deleted |= {
                it.stream_id
                for name in touched
                if (it := old.streams.get(name)) and _is_gone(it, self.image)
            }
            self.image = replace(self.image, parent_offset=old.offset, touched=frozenset(touched))
        while len(self._voters) > 1 and self._voters[1][0] < high_watermark:
            self._voters.pop(0)

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


def _is_gone(stream: StreamImage, image: MetadataImage) -> bool:
    now = image.streams.get(stream.name)
    return now is None or now.stream_id != stream.stream_id
