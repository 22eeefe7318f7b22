"""One life of a member of the metadata quorum, as ``metadata.quorum.raft_driver.RaftDriver`` lives it.

The replica, its core, store and images, are the real ones. Here events stand in the place of the
loop and of the worker thread: a blocking call takes its time, and while it runs the rest waits.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

from streamlog.errors import (
    CorruptData,
    NoController,
    OffsetOutOfRange,
    StreamlogError,
    Unavailable,
)
from streamlog.log.storage.file_pool import FilePool
from streamlog.metadata.controller import Decision
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.image.snapshot import is_due
from streamlog.metadata.quorum.metadata_replica import (
    Blocking,
    MetadataReplica,
    Outcome,
    Outgoing,
    Proposal,
    Steps,
)
from streamlog.metadata.quorum.store import MetadataStore
from streamlog.model import NodeId
from streamlog.raft import events as raft
from streamlog.raft.messages import (
    Answer,
    BeginEpochRequest,
    EndEpochRequest,
    RaftFetchRequest,
    Request,
    SnapshotId,
    VoteRequest,
)
from streamlog.raft.node import RaftSettings
from streamlog.raft.voters import VoterSet
from tests.simulation.cluster.host import Host
from tests.simulation.cluster.quorum_checkers import QuorumCheckers
from tests.simulation.cluster.rpc import Abandoned, Call, Rpc

CLUSTER_ID = "c"
DIRECTORY = Path("/metadata")
RECORDS_PER_BATCH = 1_000
RAFT_REQUESTS = (VoteRequest, BeginEpochRequest, EndEpochRequest, RaftFetchRequest)


@dataclass(frozen=True)
class ReadSnapshot:
    """Asked of the leader by a member that is too far behind."""

    snapshot: SnapshotId


@dataclass(frozen=True)
class Wish:
    """Something to be decided; ``granted`` hears offset and result, or ``failed`` why not."""

    decide: Callable[[MetadataImage], Decision]
    granted: Callable[[int, dict[str, Any]], None]
    failed: Callable[[StreamlogError], None]


@dataclass(frozen=True)
class QuorumConfig:
    """The same for all members."""

    voters: VoterSet
    voters_id: UUID
    raft: RaftSettings
    request_timeout_ms: int
    snapshot_after: int = 0
    """Records; 0: as the node does it."""
    segment_bytes: int = 1 << 20


class Member:
    """From opening the log to the end of the process."""

    def __init__(
        self,
        host: Host,
        rpc: Rpc,
        config: QuorumConfig,
        checkers: QuorumCheckers,
        *,
        committed: Callable[[MetadataImage], None] = lambda image: None,
        changed: Callable[[], None] = lambda: None,
        failed: Callable[[str], None],
    ) -> None:
        """Opens the log. ``failed``: the disk has; the process must end."""
        self.host = host
        self.store = MetadataStore(
            DIRECTORY,
            CLUSTER_ID,
            disk=host.disk,
            files=FilePool(host.disk, 4),
            segment_bytes=config.segment_bytes,
        )
        self.replica = MetadataReplica(
            self.store,
            node_id=host.node_id,
            configured=config.voters,
            voters_id=config.voters_id,
            settings=config.raft,
            random=host.rng.random,
            new_id=lambda: UUID(int=host.node_id),
        )
        self._rpc = rpc
        self._config = config
        self._checkers = checkers
        self._committed = committed
        self._changed = changed
        self._failed = failed
        self._inbox: deque[Callable[[], Steps] | Wish] = deque()
        self._steps: Steps | None = None
        self._tick_ms = -1
        self.replica.open(host.clock.monotonic_ms)
        checkers.opened(self)
        self._drive()

    @property
    def is_active(self) -> bool:
        return self.replica.raft.is_active

    @property
    def leader(self) -> NodeId | None:
        return self.replica.raft.leader

    def wish(self, wish: Wish) -> None:
        if not self.is_active:
            wish.failed(NoController("not the controller"))
        else:
            self._post(wish)

    def tell(self, event: raft.Event) -> None:
        clock = self.host.clock
        self._post(lambda: self.replica.handle(event, clock.monotonic_ms, wall_ms=clock.wall_ms))

    def do(self, call: Callable[[], object]) -> None:
        """A blocking call on the store, in its turn."""
        self._post(lambda: _blocking(call))

    def serve(self, request: object, call: Call) -> None:
        """A request of another member's."""
        match request:
            case Abandoned(call=abandoned):
                self.tell(raft.Abandoned(abandoned))
            case ReadSnapshot(snapshot):
                self._serve_snapshot(snapshot, call)
            case _:
                assert isinstance(request, RAFT_REQUESTS)
                self.tell(raft.Received(call, request))

    def _serve_snapshot(self, snapshot: SnapshotId, call: Call) -> None:
        try:
            call.answer(self.store.read_snapshot_piece(snapshot, 0, 1 << 30)[0])
        except (OffsetOutOfRange, Unavailable):
            call.answer(b"")

    # The one task

    def _post(self, item: "Callable[[], Steps] | Wish") -> None:
        self._inbox.append(item)
        if self._steps is None:
            self._drive()

    def _drive(self, error: StreamlogError | None = None) -> None:
        """Go on until a blocking call, or until there is nothing to do. ``error``: what the last
        call raised.
        """
        while True:
            if self._steps is None:
                self._steps = self._next()
                if self._steps is None:
                    self._wait_for_tick()
                    return
            try:
                raised, error = error, None
                step = next(self._steps) if raised is None else self._throw(raised)
            except (Unavailable, CorruptData) as failure:
                self._failed(str(failure))
                return
            except StopIteration:
                self._steps = None
                self._checkers.stepped(self)
                self._changed()
                continue
            if isinstance(step, Blocking):
                self.host.after(self.host.disk_delay_us(), partial(self._block, step))
                return
            self._carry_out(step)

    def _throw(self, error: StreamlogError) -> Outgoing:
        assert self._steps is not None, "its step raised"
        return self._steps.throw(error)

    def _block(self, step: Blocking) -> None:
        try:
            step.call()
        except (Unavailable, CorruptData) as error:
            self._drive(error)
        else:
            self._drive()

    def _next(self) -> Steps | None:
        if not self._inbox:
            return None
        item = self._inbox.popleft()
        if not isinstance(item, Wish):
            return item()
        wishes = [item]
        while self._inbox and isinstance(found := self._inbox[0], Wish):
            wishes.append(found)
            self._inbox.popleft()
        clock = self.host.clock
        return self.replica.decide(
            [Proposal(it.decide, it) for it in wishes],
            lambda: clock.monotonic_ms,
            lambda: clock.wall_ms,
        )

    def _wait_for_tick(self) -> None:
        deadline = self.replica.deadline_ms
        if deadline == self._tick_ms:
            return
        self._tick_ms = deadline

        def tick() -> None:
            if self._tick_ms == deadline:
                self._tick_ms = -1
                self.tell(raft.Tick())

        # A loop's timers are late, never early.
        late_us = self.host.rng.randint(0, 2_000)
        self.host.after(self.host.clock.delay_us(deadline) + late_us, tick)

    def _carry_out(self, step: Outgoing) -> None:
        match step:
            case Outcome(asker, result):
                assert isinstance(asker, Wish)
                if isinstance(result, StreamlogError):
                    asker.failed(result)
                else:
                    asker.granted(result.offset, result.result)
            case raft.Send(peer, request):
                self._send(peer, request)
            case raft.Reply(token, answer):
                assert isinstance(token, Call)
                self._checkers.replied(self, token.request, answer)
                token.answer(answer)
            case raft.InstallSnapshot(leader, snapshot):
                self._fetch_snapshot(leader, snapshot)
            case raft.Committed(high_watermark):
                self._checkers.committed(self, high_watermark)
                self._keep_snapshot()
                self._committed(self.replica.image)
            case raft.RoleChanged(role, epoch, _):
                self._checkers.role_changed(self, role, epoch)

    def _send(self, peer: NodeId, request: Request) -> None:
        self._checkers.sent(self, request)
        wait_ms = request.wait_ms if isinstance(request, RaftFetchRequest) else 0

        def answered(answer: object) -> None:
            assert isinstance(answer, Answer)
            self.tell(raft.Answered(peer, request, answer))

        def failed(refused: bool) -> None:
            if refused:
                self.tell(raft.PeerGone(peer))
            self.tell(raft.Failed(peer, request))

        timeout_ms = self._config.request_timeout_ms + wait_ms
        self._rpc.call(
            self.host, peer, request, timeout_ms=timeout_ms, answered=answered, failed=failed
        )

    def _fetch_snapshot(self, leader: NodeId, snapshot: SnapshotId) -> None:
        def answered(data: object) -> None:
            assert isinstance(data, bytes)
            if data:
                now = self.host.clock.monotonic_ms
                self._post(lambda: self.replica.install(snapshot, data, now))
            else:
                self.tell(raft.SnapshotFailed())

        self._rpc.call(
            self.host,
            leader,
            ReadSnapshot(snapshot),
            timeout_ms=self._config.request_timeout_ms,
            answered=answered,
            failed=lambda _: self.tell(raft.SnapshotFailed()),
        )

    def _keep_snapshot(self) -> None:
        image, store, after = self.replica.image, self.store, self._config.snapshot_after
        last = store.snapshot.end_offset if store.snapshot else 0
        if image.offset - last > after if after else is_due(image, store.snapshot):
            self.do(self.replica.snapshot(image))
        if self.host.rng.random() < 0.1:
            self.do(lambda: store.checkpoint(image.offset))


def _blocking(call: Callable[[], object]) -> Steps:
    yield Blocking(call)
