"""A node of a simulated quorum: its disk, and one process after the other.

It drives its core as a node does: the effects of a step one after the other, a blocking one takes
its time, and what is not on the disk when the host crashes is gone.
"""

import uuid
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from streamlog.errors import InvalidRequest, NoController
from streamlog.model import NodeId
from streamlog.raft import events as raft
from streamlog.raft.events import Role
from streamlog.raft.messages import Answer, FetchAnswer, RaftFetchRequest, Request, SnapshotId
from streamlog.raft.node import RaftNode
from streamlog.raft.voters import ReplicaKey, VoterSet
from tests.quorum_checkers import Violation
from tests.quorum_log import (
    Entry,
    MemoryDisk,
    Payload,
    Snapshot,
    decode,
    encode,
    recorded,
    voters_of,
    voters_payload,
)

if TYPE_CHECKING:
    from tests.quorum_world import World

VOTERS_ID: Final = uuid.UUID(int=7)
REQUEST_TIMEOUT_MS: Final = 2_000
TICKS_MAX: Final = 30
"""In one millisecond; more is a core that turns round and round."""


class Host:
    """A node's disk, and one process after the other."""

    def __init__(self, world: "World", node_id: NodeId) -> None:
        self.world = world
        self.node_id = node_id
        self.disk = MemoryDisk(uuid.UUID(int=world.rng.getrandbits(128)))
        self.absent: list[MemoryDisk] = []
        """Folders on volumes that are not mounted now; they may be again."""
        self.is_up = False
        self.life = 0
        self.forgets_votes = False
        """A planted bug."""
        self.acknowledges_unsynced = False
        """A planted bug."""
        self._cuts = 0
        """Cuts so far: a sync that was begun before one says nothing of the log after it."""
        self.raft: RaftNode
        self._inbox: deque[raft.Event] = deque()
        self._steps: Iterator[int] | None = None
        self._voters: list[tuple[int, VoterSet]] = []
        self._fetches: dict[object, RaftFetchRequest] = {}
        self._begun_epoch = 0
        self._tick_due_ms = -1
        self._ticks: list[int] = []
        self._proposals: deque[Payload | Callable[[], Payload]] = deque()

    @property
    def key(self) -> ReplicaKey:
        return ReplicaKey(self.node_id, self.disk.directory_id)

    @property
    def voters(self) -> VoterSet:
        return self._voters[-1][1]

    @property
    def returning(self) -> frozenset[NodeId]:
        """By the last record about voters: to vote again, with the folders that they have then."""
        offset, log = self._voters[-1][0], self.disk.log
        payload = log.prefix(log.end_offset)[offset].payload if offset >= 0 else {}
        return frozenset(payload.get("returning", ()))

    # Life and death

    def start(self) -> None:
        assert not self.is_up
        self.world.tell(f"{self.node_id} starts")
        self.is_up = True
        self.life += 1
        self._inbox.clear()
        self._steps = None
        self._fetches.clear()
        self._proposals.clear()
        self._tick_due_ms = -1
        self._read_voters()
        log = self.disk.log
        offset, voters = self._voters[-1]
        self.raft = RaftNode(
            self.key,
            log,
            epoch=max(0 if self.forgets_votes else self.disk.epoch, log.last_epoch, 0),
            voted_for=None if self.forgets_votes else self.disk.voted_for,
            voters=voters,
            voters_offset=offset,
            voters_id=VOTERS_ID,
            high_watermark=log.snapshot.end_offset if log.snapshot else 0,
            settings=self.world.settings,
            random=self.world.rng.random,
            now_ms=self.world.now_ms,
            acquaintances=self.world.configured.ids,
        )
        self.world.checkers.started(self)
        self._drive()

    def crash(self) -> None:
        """All that was not synced may be lost."""
        if self.is_up:
            self.world.tell(f"{self.node_id} crashes")
            self.is_up = False
            log = self.disk.log
            log.crash(self.world.rng.randint(log.durable_end, log.end_offset))
            self.world.reset(self)

    def wipe(self) -> None:
        self.world.tell(f"{self.node_id} gets an empty disk")
        assert not self.is_up
        self.disk = MemoryDisk(uuid.UUID(int=self.world.rng.getrandbits(128)))

    def mount(self, disk: MemoryDisk | None = None) -> None:
        """Another folder in the place of this one, which may come back; by default an empty one."""
        assert not self.is_up
        self.absent.append(self.disk)
        if disk is None:
            self.world.tell(f"{self.node_id} gets an empty folder, the other one is not mounted")
            self.disk = MemoryDisk(uuid.UUID(int=self.world.rng.getrandbits(128)))
        else:
            self.world.tell(f"{self.node_id} gets an old folder back")
            self.absent.remove(disk)
            self.disk = disk

    def _read_voters(self) -> None:
        self._voters = [(-1, self.world.configured)]
        for offset, entry in enumerate(self.disk.log.prefix(self.disk.log.end_offset)):
            if (voters := voters_of(entry.payload)) is not None:
                self._voters.append((offset, voters))

    # The loop

    def post(self, event: raft.Event) -> None:
        if self.is_up:
            self._inbox.append(event)
            if self._steps is None:
                self._drive()

    def propose(self, payload: Payload | Callable[[], Payload]) -> None:
        """To be written, or decided upon, if this host still leads when its turn comes."""
        self._proposals.append(payload)
        self.post(raft.Appended(self.disk.log.end_offset))

    def resign(self, successor: NodeId | None) -> None:
        self.post(raft.Resign(successor))

    def _drive(self) -> None:
        """Go on until something blocks."""
        while self.is_up:
            if self._steps is None:
                self._steps = self._next()
            if self._steps is None:
                self._arm()
                return
            delay_ms = next(self._steps, None)
            if delay_ms is None:
                self._steps = None
                self.world.checkers.stepped(self)
            else:
                self.world.after(delay_ms, partial(self._drive_on, self.life))
                return

    def _drive_on(self, life: int) -> None:
        if self.life == life:
            self._drive()

    def _next(self) -> Iterator[int] | None:
        core = self.raft
        if core.role is Role.LEADER and core.epoch != self._begun_epoch:
            self._begun_epoch = core.epoch
            if core.voters.is_recorded:
                return self._write("begin")
            return self._write(voters_payload(recorded(core.voters, *core.electors)))
        if self._inbox:
            return self._handle([self._inbox.popleft()])
        if self._proposals and core.role is Role.LEADER:
            payload = self._proposals.popleft()
            return self._write(payload() if callable(payload) else payload)
        self._proposals.clear()
        return None

    def _arm(self) -> None:
        now_ms = self.world.now_ms
        due_ms = max(self.raft.deadline_ms, now_ms)
        if due_ms == self._tick_due_ms:
            return
        self._tick_due_ms = due_ms
        life = self.life

        def tick() -> None:
            if self.life == life and self._tick_due_ms == due_ms:
                self._tick_due_ms = -1
                self._ticks = [it for it in self._ticks if it == self.world.now_ms]
                self._ticks.append(self.world.now_ms)
                if len(self._ticks) > TICKS_MAX:
                    raise Violation(f"{self.node_id} ticks without end, as {self.raft.role}")
                self.post(raft.Tick())

        self.world.after(due_ms - now_ms, tick)

    def _handle(self, first: list[raft.Event]) -> Iterator[int]:
        """Step after step; yields how long to wait."""
        events = deque(first)
        while events:
            event = events.popleft()
            if isinstance(event, raft.Received) and isinstance(event.request, RaftFetchRequest):
                self._fetches[event.token] = event.request
            for effect in self.raft.step(event, self.world.now_ms):
                yield from self._carry_out(effect, events)

    def _carry_out(self, effect: raft.Effect, events: deque[raft.Event]) -> Iterator[int]:
        log = self.disk.log
        match effect:
            case raft.SaveVote(epoch, voted_for):
                yield self._disk_ms()
                self.world.checkers.saved(self, epoch, voted_for)
                self.disk.epoch, self.disk.voted_for = epoch, voted_for
                yield self._disk_ms()
            case raft.Append(records):
                for entry in decode(records):
                    events.extend(self._append(entry))
                if not self.acknowledges_unsynced:
                    yield self._disk_ms()
                    log.sync()
                events.append(raft.Synced(log.end_offset))
            case raft.Truncate(end_offset):
                if end_offset < self.raft.high_watermark:
                    raise Violation(f"{self.node_id} cuts to {end_offset}")
                yield self._disk_ms()
                log.truncate(end_offset)
                log.sync()
                self._cuts += 1
                events.extend([*self._cut(end_offset), raft.Synced(end_offset)])
            case raft.InstallSnapshot(leader, snapshot):
                self._ask_snapshot(leader, snapshot)
            case raft.Send(peer, request):
                self._send(peer, request)
            case raft.Reply(token, answer):
                self._reply(token, answer)
            case raft.Committed(high_watermark):
                self.world.checkers.committed(self, high_watermark)
            case raft.RoleChanged(role, epoch, _):
                self.world.tell(f"{self.node_id} {role.value} in {epoch}, {effect.leader} leads")
                self.world.checkers.role_changed(self, role, epoch)

    def _write(self, payload: Payload) -> Iterator[int]:
        """A leader's own record: others may fetch it before it is synced here."""
        log = self.disk.log
        voters = voters_of(payload)
        if voters is not None:
            try:
                self.raft.check_voters_change(voters)
            except (NoController, InvalidRequest) as error:
                payload = f"refused: {error}"
        changed = self._append(Entry(self.raft.epoch, payload))
        end_offset, cuts, life = log.end_offset, self._cuts, self.life
        yield from self._handle([*changed, raft.Appended(end_offset)])
        if not self.world.syncs_aside:
            yield self._disk_ms()
            log.sync()
            yield from self._handle([raft.Synced(log.end_offset)])
            return

        def synced() -> None:
            if (cuts, life) == (self._cuts, self.life) and self.is_up:
                log.durable_end = max(log.durable_end, end_offset)
                self.post(raft.Synced(log.durable_end))

        self.world.after(self._disk_ms(), synced)

    def _append(self, entry: Entry) -> list[raft.Event]:
        log = self.disk.log
        log.append([entry])
        voters = voters_of(entry.payload)
        if voters is None:
            return []
        self._voters.append((log.end_offset - 1, voters))
        return [raft.VotersCommitted(voters, log.end_offset - 1)]

    def _cut(self, end_offset: int) -> list[raft.Event]:
        before = self._voters[-1]
        while self._voters[-1][0] >= end_offset:
            self._voters.pop()
        offset, voters = self._voters[-1]
        return [] if self._voters[-1] == before else [raft.VotersCommitted(voters, offset)]

    def _disk_ms(self) -> int:
        return self.world.rng.choice((0, 1, 2, 10))

    # The messengers

    def _send(self, peer: NodeId, request: Request) -> None:
        world = self.world
        world.sent += 1
        world.checkers.sent(self, request)
        target = world.hosts[peer]
        call = Call(world, self, target, request)
        wait_ms = request.wait_ms if isinstance(request, RaftFetchRequest) else 0

        def arrive() -> None:
            if target.is_up:
                target.post(raft.Received(_Token(call), request))
            else:
                world.deliver(peer, self.node_id, lambda: call.end(None, gone=True))

        world.deliver(self.node_id, peer, arrive)
        world.after(REQUEST_TIMEOUT_MS + wait_ms, lambda: call.end(None, gone=False))

    def _reply(self, token: object, answer: Answer) -> None:
        assert isinstance(token, _Token)
        self.world.checkers.replied(self, token.call.request, answer)
        request = self._fetches.pop(token, None)
        if isinstance(answer, FetchAnswer) and request is not None:
            answer = self._with_records(answer, request)
        call, answered = token.call, answer
        self.world.deliver(
            self.node_id, call.source.node_id, lambda: call.end(answered, gone=False)
        )

    def _with_records(self, answer: FetchAnswer, request: RaftFetchRequest) -> FetchAnswer:
        log = self.disk.log
        if answer.end_offset <= request.offset:
            return answer
        end = min(answer.end_offset, request.offset + self.world.fetch_entries)
        entries = [log.at(offset) for offset in range(request.offset, end)]
        return FetchAnswer(
            answer.epoch,
            answer.leader,
            high_watermark=answer.high_watermark,
            end_offset=answer.end_offset,
            records=encode(entries),
        )

    def _ask_snapshot(self, leader: NodeId, wanted: SnapshotId) -> None:
        world, life, target = self.world, self.life, self.world.hosts[leader]

        def arrive() -> None:
            found = target.disk.log.snapshots if target.is_up else []
            snapshot = next((it for it in found if it.id == wanted), None)
            world.deliver(leader, self.node_id, lambda: end(snapshot))

        def end(snapshot: Snapshot | None) -> None:
            nonlocal life
            if self.life == life and self.is_up:
                life = -1  # once
                if snapshot is None:
                    self.post(raft.SnapshotFailed())
                else:
                    self._install_soon(snapshot)

        world.deliver(self.node_id, leader, arrive)
        world.after(REQUEST_TIMEOUT_MS, lambda: end(None))

    def _install_soon(self, snapshot: Snapshot) -> None:
        """In its turn, like any event."""

        def install() -> None:
            if self._steps is not None or not self.is_up:
                if self.is_up:
                    self.world.after(1, install)
                return
            self.disk.log.install(snapshot)
            self._read_voters()
            offset, voters = self._voters[-1]
            self._steps = self._handle(
                [raft.VotersCommitted(voters, offset), raft.SnapshotInstalled(snapshot.id)]
            )
            self._drive()
            self.world.checkers.committed(self, snapshot.id.end_offset)

        life = self.life
        self.world.after(1, lambda: install() if self.life == life else None)


class Call:
    """One request on its way; ends once, with an answer or without."""

    def __init__(self, world: "World", source: Host, target: Host, request: Request) -> None:
        self.world = world
        self.source = source
        self.target = target
        self.request = request
        self._life = source.life
        self._is_over = False
        world.calls.append(self)

    def end(self, answer: Answer | None, *, gone: bool) -> None:
        source, peer = self.source, self.target.node_id
        if not self._is_over and self in self.world.calls:
            self.world.calls.remove(self)
        if source.life != self._life or not source.is_up:
            return
        if answer is not None and (not self._is_over or self.world.chaos.duplicates > 0):
            self._is_over = True
            source.post(raft.Answered(peer, self.request, answer))
        elif answer is None and not self._is_over:
            self._is_over = True
            if gone:
                source.post(raft.PeerGone(peer))
            source.post(raft.Failed(peer, self.request))


class _Token:
    """Stands for the request at whoever answers it; a duplicate has one of its own."""

    def __init__(self, call: Call) -> None:
        self.call = call
