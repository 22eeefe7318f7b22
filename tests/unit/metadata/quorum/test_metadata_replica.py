import itertools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from uuid import UUID

import pytest

from streamlog.errors import (
    NoController,
    Overloaded,
    RequestTimedOut,
    StreamExists,
    StreamlogError,
)
from streamlog.log.storage.disk import OsDisk
from streamlog.log.storage.file_pool import FilePool
from streamlog.metadata.commands import Granted
from streamlog.metadata.controller import Decision
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.image.records import (
    MetadataLogBegun,
    MetadataRecord,
    StreamCreated,
    StreamDeleted,
)
from streamlog.metadata.image.snapshot import encode_snapshot
from streamlog.metadata.quorum.metadata_replica import (
    RECORDS_PER_BATCH,
    Blocking,
    MetadataReplica,
    Outcome,
    Proposal,
    Steps,
)
from streamlog.metadata.quorum.store import MetadataStore
from streamlog.metadata.quorum.voter_sets import configured_voters, fingerprint
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.model import NodeId
from streamlog.raft import events as raft
from streamlog.raft.messages import RaftFetchRequest, SnapshotId, VoteAnswer, VoteRequest
from streamlog.raft.settings import RaftSettings
from streamlog.raft.voters import ReplicaKey

OTHER = ReplicaKey(NodeId(2), UUID(int=2))
WALL_MS = 1_800_000_000_000


class World:
    """One member. Its blocking calls run at once; an append may be made to fail."""

    def __init__(self, directory: Path, *voters: str) -> None:
        disk = OsDisk()
        configured = configured_voters(voters)
        self.store = MetadataStore(directory, "c", disk=disk, files=FilePool(disk, 4))
        self.replica = MetadataReplica(
            self.store,
            node_id=NodeId(1),
            configured=configured,
            voters_id=fingerprint("c", configured),
            settings=RaftSettings(),
            random=lambda: 0.5,
        )
        self.now_ms = 0
        self.outcomes: list[tuple[object, int | type[StreamlogError]]] = []
        """The offset, or the error, of each asker that was answered."""
        self.sent: list[raft.Send] = []
        self.replica.open(self.now_ms)

    def decide(self, *proposals: tuple[str, int]) -> None:
        """Askers, and how many records each of them wants."""
        numbers = itertools.count(len(self.replica.newest.streams))

        def proposal(asker: str, count: int) -> Proposal:
            records = tuple(created(next(numbers)) for _ in range(count))
            return Proposal(lambda image: Decision(records), asker)

        asked = [proposal(*it) for it in proposals]
        self.run(self.replica.decide(asked, lambda: self.now_ms, lambda: WALL_MS))

    def write(self, *records: MetadataRecord) -> None:
        asked = [Proposal(lambda image: Decision(records), "a")]
        self.run(self.replica.decide(asked, lambda: self.now_ms, lambda: WALL_MS))

    def tick(self) -> None:
        self.now_ms = self.replica.deadline_ms
        self.handle(raft.Tick())

    def handle(self, event: raft.Event) -> None:
        self.run(self.replica.handle(event, self.now_ms, wall_ms=WALL_MS))

    def fetched(self, end_offset: int) -> None:
        """The other voter has all below."""
        raft_epoch = self.replica.raft.epoch
        request = RaftFetchRequest(raft_epoch, OTHER, end_offset, last_epoch=raft_epoch)
        self.handle(raft.Received(object(), request))

    def note(self, outcomes: Iterable[Outcome]) -> None:
        for outcome in outcomes:
            result = outcome.result
            told = result.offset if isinstance(result, Granted) else type(result)
            self.outcomes.append((outcome.asker, told))

    def run(self, steps: Steps) -> None:
        raised: StreamlogError | None = None
        with suppress(StopIteration):
            while True:
                step = next(steps) if raised is None else steps.throw(raised)
                raised = None
                if isinstance(step, Outcome):
                    self.note([step])
                elif isinstance(step, raft.Send):
                    self.sent.append(step)
                elif isinstance(step, Blocking):
                    try:
                        step.call()
                    except StreamlogError as error:
                        raised = error


def fail_append(store: MetadataStore, patch: pytest.MonkeyPatch, *, after: int) -> None:
    """So many succeed, then one fails, then all succeed."""
    left, append = after, store.append

    def failing(records: Sequence[MetadataRecord], epoch: int, now_ms: int) -> None:
        nonlocal left
        left -= 1
        if left == -1:
            raise Overloaded("no files")
        append(records, epoch, now_ms)

    patch.setattr(store, "append", failing)


def created(number: int) -> MetadataRecord:
    config = StreamConfig.of(name=f"s{number}")
    return StreamCreated(stream_id=UUID(int=number + 1), config=config, created_ms=0)


def deleted(number: int) -> MetadataRecord:
    return StreamDeleted(name=f"s{number}", stream_id=UUID(int=number + 1))


def begun(log: int) -> MetadataRecord:
    return MetadataLogBegun(log_id=UUID(int=log), begun_ms=0, first_producer_id=0)


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[World]:
    """The controller of a cluster of one voter."""
    world = World(tmp_path, "1@localhost:9092")
    while not world.replica.raft.is_active:
        world.tick()
    yield world
    world.store.close()


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[World]:
    """The controller of a cluster of two: what it writes is committed when the other has it."""
    world = World(tmp_path, "1@localhost:9092", "2@localhost:9093")
    world.tick()
    while world.replica.raft.role is not raft.Role.LEADER:
        send = world.sent.pop(0)
        assert isinstance(send.request, VoteRequest)
        answer = VoteAnswer(world.replica.raft.epoch, None, True, OTHER)
        world.handle(raft.Answered(send.peer, send.request, answer))
    world.fetched(world.store.end_offset)
    assert world.replica.raft.is_active
    yield world
    world.store.close()


def test_a_decision_is_granted_when_it_is_committed(leader: World) -> None:
    before = leader.store.end_offset
    leader.decide(("a", 2), ("b", 1))
    assert leader.store.end_offset == before + 3
    assert leader.outcomes == []
    assert leader.replica.image.offset == before
    leader.fetched(before + 3)
    assert leader.outcomes == [("a", before + 2), ("b", before + 3)]
    assert set(leader.replica.image.streams) == {"s0", "s1", "s2"}
    assert leader.replica.give_up(NoController("another leads")) == []


def test_a_voter_by_itself_commits_what_it_has_synced(alone: World) -> None:
    before = alone.store.end_offset
    alone.decide(("a", 1))
    assert alone.outcomes == [("a", before + 1)]


def test_each_decision_is_made_on_top_of_those_before_it(alone: World) -> None:
    seen: list[int] = []

    def proposal(asker: str, number: int) -> Proposal:
        def decide(image: MetadataImage) -> Decision:
            seen.append(len(image.streams))
            return Decision((created(number),))

        return Proposal(decide, asker)

    asked = [proposal("a", 0), proposal("b", 1)]
    alone.run(alone.replica.decide(asked, lambda: alone.now_ms, lambda: WALL_MS))
    assert seen == [0, 1]


def test_what_refuses_is_answered_and_the_others_are_decided(alone: World) -> None:
    before = alone.store.end_offset

    def refuse(image: MetadataImage) -> Decision:
        raise StreamExists("no")

    asked = [Proposal(refuse, "a"), Proposal(lambda image: Decision((created(0),)), "b")]
    alone.run(alone.replica.decide(asked, lambda: alone.now_ms, lambda: WALL_MS))
    assert alone.outcomes == [("a", StreamExists), ("b", before + 1)]


def test_what_was_not_written_is_not_granted_when_others_take_its_offsets(
    alone: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = alone.store.end_offset
    fail_append(alone.store, monkeypatch, after=0)
    alone.decide(("a", 1))
    assert alone.outcomes == [("a", Overloaded)]
    alone.decide(("b", 1))
    assert alone.outcomes == [("a", Overloaded), ("b", before + 1)]


def test_of_what_was_written_in_part_nobody_says_that_nothing_was(
    alone: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = alone.store.end_offset
    fail_append(alone.store, monkeypatch, after=1)
    alone.decide(("a", 1), ("b", RECORDS_PER_BATCH), ("c", 1))
    answers = [("a", before + 1), ("b", RequestTimedOut), ("c", Overloaded)]
    assert alone.outcomes == answers
    assert alone.store.end_offset == before + RECORDS_PER_BATCH
    alone.decide(("d", 2))
    assert alone.outcomes == [*answers, ("d", before + RECORDS_PER_BATCH + 2)]


def test_where_nothing_is_written_what_it_was_decided_upon_must_be_committed(
    leader: World,
) -> None:
    before = leader.store.end_offset
    leader.decide(("a", 1))
    leader.decide(("b", 0))
    assert leader.outcomes == []
    leader.fetched(before + 1)
    assert leader.outcomes == [("a", before + 1), ("b", before + 1)]


def test_a_leader_that_finds_no_room_has_the_other_lead(
    leader: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = leader.store.end_offset
    leader.decide(("a", 1))
    fail_append(leader.store, monkeypatch, after=0)
    leader.decide(("b", 1))
    assert leader.replica.raft.role is not raft.Role.LEADER
    # The other may have "a", or may get it: nobody knows here whether it is committed.
    assert leader.outcomes == [("b", Overloaded), ("a", RequestTimedOut)]
    leader.decide(("c", 1))
    assert leader.outcomes[2:] == [("c", NoController)]
    assert leader.store.end_offset == before + 1


def test_what_waits_at_the_end_is_given_up(leader: World) -> None:
    leader.decide(("a", 1))
    leader.note(leader.replica.give_up(NoController("the node stops")))
    assert leader.outcomes == [("a", NoController)]
    leader.fetched(leader.store.end_offset)
    assert leader.outcomes == [("a", NoController)]


# What an earlier run of the node may have left folders of


def test_a_stream_that_was_created_and_deleted_before_the_start_is_known_as_deleted(
    tmp_path: Path, alone: World
) -> None:
    alone.write(created(0), created(1))
    alone.write(deleted(0))
    alone.store.close()
    restarted = World(tmp_path, "1@localhost:9092")
    assert set(restarted.replica.newest.streams) == {"s1"}
    while not restarted.replica.raft.is_active:
        restarted.tick()
    assert restarted.replica.deleted == {UUID(int=1)}
    restarted.store.close()


def test_what_a_snapshot_of_the_leader_lacks_was_deleted(leader: World) -> None:
    leader.write(begun(1), created(0), created(1))
    leader.fetched(leader.store.end_offset)
    leader.write(created(2))  # another controller may have committed it
    install(leader, begun(1), created(1))
    assert leader.replica.deleted == {UUID(int=1), UUID(int=3)}


def test_what_another_metadata_log_lacks_may_be_all_there_is(leader: World) -> None:
    """A quorum that was forced has lost the end of the log before."""
    leader.write(begun(1), created(0))
    leader.fetched(leader.store.end_offset)
    install(leader, begun(2))
    assert leader.replica.deleted == set()


def install(world: World, *records: MetadataRecord) -> None:
    """The snapshot of a controller that has gone on."""
    offset, epoch = world.store.end_offset + 10, world.replica.raft.epoch
    empty = MetadataImage("c", voters=world.replica.voters)
    image = empty.apply_all(records, offset=offset, epoch=epoch)
    snapshot = SnapshotId(image.offset, epoch)
    world.run(world.replica.install(snapshot, encode_snapshot(image), world.now_ms))
    assert world.replica.image.offset == image.offset
