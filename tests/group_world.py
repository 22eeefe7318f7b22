"""A coordinator over a log in memory: whoever asks is answered when the test commits the log."""

from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import Any
from uuid import UUID

from streamlog.config import GroupsSection
from streamlog.coordination.effects import NONE, KeptRecord, Now, SendReply, TransactionPart, Write
from streamlog.errors import InvalidRequest
from streamlog.groups.coordinator import Coordinator
from streamlog.groups.records import Assigned
from streamlog.groups.replay import GroupReplay
from streamlog.groups.requests import (
    CommitRequest,
    Effect,
    FoundOffset,
    GroupCaller,
    HeartbeatRequest,
    Joined,
    JoinRequest,
    MatchTopics,
    OffsetToCommit,
    PartitionId,
    SyncedMember,
    SyncRequest,
    TransactionCommit,
)
from streamlog.groups.shares.share_states import ShareStates
from streamlog.groups.subscribed_topics import Matches, Topic, matching
from streamlog.record.codec import RecordRun
from streamlog.record.transaction_marker import (
    TransactionMarker,
    as_transactional,
    marker_batch,
)
from streamlog.wire.error_codes import ErrorCode

TOPIC_ID = UUID(int=7)
ANYBODY = GroupCaller("")
"""Who assigns partitions itself."""
WALL_MS = 1_700_000_000_000
NO_DELAY = GroupsSection(initial_rebalance_delay_ms=0)


def subscription(*topics: str, more: bytes = b"") -> bytes:
    """What a member of type ``consumer`` says of itself."""
    encoded = [len(topic).to_bytes(2, "big") + topic.encode() for topic in topics]
    return b"".join((b"\x00\x01", len(topics).to_bytes(4, "big"), *encoded, more))


class Token:
    """A request that waits; ``results`` has what it was answered."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.results: list[Any] = []

    @property
    def result(self) -> Any:
        (result,) = self.results
        return result

    @property
    def is_answered(self) -> bool:
        return bool(self.results)

    def __repr__(self) -> str:
        return f"<{self.name}: {self.results}>"


class WorldTopics:
    """``subscribed_topics.Topics`` of a test."""

    def __init__(self) -> None:
        self.version = 0
        self.known: dict[str, Topic] = {}
        self._ids = count(1_000)

    def make(self, name: str, partitions: int) -> None:
        """Of the same name as one that was deleted, it is another one."""
        self.version += 1
        topic_id = self.known[name].topic_id if name in self.known else UUID(int=next(self._ids))
        self.known[name] = Topic(topic_id, partitions)

    def delete(self, name: str) -> None:
        self.version += 1
        del self.known[name]

    def find(self, name: str) -> Topic | None:
        return self.known.get(name)

    def name_of(self, topic_id: UUID) -> str | None:
        return next((it for it, topic in self.known.items() if topic.topic_id == topic_id), None)

    def names(self) -> Iterable[str]:
        return tuple(self.known)


class GroupWorld:
    """One partition of ``__consumer_offsets``, its coordinator, and the time."""

    def __init__(self, settings: GroupsSection = NO_DELAY, *, commits: bool = True) -> None:
        """``commits``: what is written is committed at once."""
        self.settings = settings
        self.commits = commits
        self.ms = 0
        self.log: list[KeptRecord] = []
        """What is committed."""
        self.parts: dict[int, int] = {}
        """Producers of records of transactions, by their place in the log."""
        self.ends: list[tuple[int, int, bool]] = []
        """Of transactions: place, producer, whether it is committed."""
        self.writing: list[Write] = []
        """What is appended, and waits."""
        self.refuse: ErrorCode | None = None
        """What becomes of appends, if they fail at once."""
        self.numbers = count(1)
        self.since_ms = 0
        """As the next coordinator is told."""
        self.topics = WorldTopics()
        self.coordinator = self._coordinator([])

    @property
    def now(self) -> Now:
        return Now(self.ms, WALL_MS + self.ms)

    def _coordinator(
        self, groups: list[Any], share_configs: Mapping[str, Mapping[str, str]] | None = None
    ) -> Coordinator:
        return Coordinator(
            self.settings,
            lambda: f"id{next(self.numbers)}",
            groups,
            now=self.now,
            since_ms=self.since_ms,
            share_configs=share_configs,
        )

    def carry_out(self, effects: list[Effect]) -> None:
        todo = list(effects)
        while todo:
            effect = todo.pop(0)
            if isinstance(effect, SendReply):
                assert isinstance(effect.token, Token)
                assert not effect.token.results, f"{effect.token} is answered twice"
                effect.token.results.append(effect.result)
            elif isinstance(effect, MatchTopics):
                todo += effect.then(self.matches(effect.expressions), self.topics.version, self.now)
            elif self.refuse is not None:
                todo += effect.then(self.refuse, self.now)
            else:
                self.writing.append(effect)
                if self.commits:
                    self.commit_log()

    def matches(self, expressions: Iterable[str]) -> Matches:
        found: dict[str, frozenset[str] | str] = {}
        for it in expressions:
            try:
                found[it] = matching(it, self.topics.names())
            except InvalidRequest as error:
                found[it] = str(error)
        return found

    def topics_changed(self, *names: str) -> None:
        """The coordinator hears of these; of all of them, if none is named."""
        effects = self.coordinator.topics_changed(self.topics, names or None, self.now)
        self.carry_out(effects)

    def commit_log(self, at_most: int | None = None) -> None:
        """What waits is in the log; the oldest ``at_most``."""
        waiting, self.writing = self.writing[:at_most], self.writing[len(self.writing[:at_most]) :]
        for write in waiting:
            self._append(write)
            self.carry_out(write.then(NONE, self.now))

    def _append(self, write: Write) -> None:
        for record in write.records:
            if write.transaction is not None:
                self.parts[len(self.log)] = write.transaction.producer_id
            self.log.append(record)

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """Its marker is in the log, after all that waits."""
        self.commit_log()
        self.ends.append((len(self.log), producer_id, commit))
        self.carry_out(self.coordinator.end_transaction(producer_id, commit=commit))

    def replayed(self) -> GroupReplay:
        """Of the log, batch by batch."""
        replay, ends = GroupReplay(), list(self.ends)
        for offset in range(len(self.log) + 1):
            while ends and ends[0][0] == offset:
                _, producer_id, commit = ends.pop(0)
                marker = TransactionMarker(producer_id, 0, commit, 1)
                replay.feed(
                    marker_batch(marker, base_offset=offset, leader_epoch=1, timestamp_ms=1)
                )
                replay.next_offset = offset
            if offset < len(self.log):
                run = RecordRun()
                run.append(*self.log[offset])
                producer_id = self.parts.get(offset, -1)
                batch = run.seal(
                    base_offset=offset,
                    leader_epoch=1,
                    timestamp_ms=1,
                    producer=(producer_id, 0, -1),
                )
                replay.feed(as_transactional(batch) if offset in self.parts else batch)
        return replay

    def crash(self, kept: int = 0) -> None:
        """Another node coordinates, from the log, which has the first ``kept`` of what waits."""
        for write in self.writing[:kept]:
            self._append(write)
        self.writing.clear()
        built = self.replayed().built()
        self.coordinator = self._coordinator(built, built.share_configs)
        self.topics_changed()

    def wait(self, ms: int) -> None:
        """Time goes by, with all that is due meanwhile."""
        end = self.ms + ms
        while (next_ms := self.coordinator.next_ms) is not None and next_ms <= end:
            self.ms = max(self.ms, next_ms)
            self.carry_out(self.coordinator.tick(self.now))
        self.ms = end

    # What clients do

    def join(
        self,
        member_id: str = "",
        *,
        group: str = "g",
        instance_id: str | None = None,
        protocols: tuple[tuple[str, bytes], ...] = (("range", subscription("t")),),
        protocol_type: str = "consumer",
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
        needs_known_id: bool = False,
        may_skip: bool = False,
    ) -> Token:
        token = Token(f"join {member_id}")
        request = JoinRequest(
            group, GroupCaller(member_id, instance_id), "client", "/host", session_ms, rebalance_ms,
            protocol_type, protocols, needs_known_id, may_skip,
        )  # fmt: skip
        self.carry_out(self.coordinator.join(request, token, self.now))
        return token

    def sync(
        self,
        joined: Joined,
        assignments: dict[str, bytes] | None = None,
        *,
        group: str = "g",
        instance_id: str | None = None,
        protocol: str | None = None,
    ) -> Token:
        token = Token(f"sync {joined.member_id}")
        caller = GroupCaller(joined.member_id, instance_id, joined.generation)
        request = SyncRequest(group, caller, None, protocol, assignments or {})
        self.carry_out(self.coordinator.sync(request, token, self.now))
        return token

    def beat(
        self, joined: Joined, *, group: str = "g", instance_id: str | None = None
    ) -> ErrorCode:
        caller = GroupCaller(joined.member_id, instance_id, joined.generation)
        return self.coordinator.heartbeat(group, caller, self.now)

    def leave(self, *callers: GroupCaller, group: str = "g") -> list[ErrorCode]:
        token = Token("leave")
        self.carry_out(self.coordinator.leave(group, callers, token, self.now))
        found: list[ErrorCode] = token.result
        return found

    def commit(
        self,
        offset: int,
        caller: GroupCaller = ANYBODY,
        *,
        group: str = "g",
        place: PartitionId = ("t", 0),
        metadata: str = "",
        retention_ms: int = -1,
    ) -> Token:
        token = Token(f"commit {offset}")
        offsets = {place: OffsetToCommit(offset, 3, metadata, TOPIC_ID)}
        request = CommitRequest(group, caller, offsets, retention_ms)
        self.carry_out(self.coordinator.commit(request, token, self.now))
        return token

    def commit_in_transaction(
        self,
        offset: int,
        producer_id: int = 7,
        caller: GroupCaller = ANYBODY,
        *,
        group: str = "g",
        place: PartitionId = ("t", 0),
    ) -> Token:
        token = Token(f"commit {offset} of {producer_id}")
        offsets = {place: OffsetToCommit(offset, 3, "", TOPIC_ID)}
        commit = CommitRequest(group, caller, offsets)
        request = TransactionCommit(commit, TransactionPart(producer_id, 0, object()))
        self.carry_out(self.coordinator.commit_in_transaction(request, token, self.now))
        return token

    def committed(
        self, group: str = "g", place: PartitionId = ("t", 0), *, stable: bool = False
    ) -> int | ErrorCode | None:
        found: FoundOffset = self.coordinator.fetch(group, [place], stable=stable)[place]
        if found.error is not NONE:
            return found.error
        return None if found.committed is None else found.committed.offset

    def ask(self, call: Callable[[Token, Now], list[Effect]]) -> Any:
        """The answer to something that is answered at once."""
        token = Token("ask")
        self.carry_out(call(token, self.now))
        return token.result

    def state(self, group: str = "g") -> str | None:
        described = self.coordinator.describe(group)
        return None if described is None else described.state

    def consumer_beat(
        self,
        member_id: str,
        epoch: int,
        owned: Assigned | None = None,
        *,
        group: str = "g",
        topics: tuple[str, ...] | None = None,
        regex: str | None = None,
        instance_id: str | None = None,
        assignor: str | None = None,
        rebalance_ms: int = -1,
        sees: Callable[[str], bool] | None = None,
    ) -> Token:
        """ConsumerGroupHeartbeat; with epoch 0 it names the topic ``t``, if it names nothing."""
        token = Token(f"beat of {member_id}")
        if epoch == 0:
            owned, rebalance_ms = frozenset(), 60_000 if rebalance_ms < 0 else rebalance_ms
            topics = ("t",) if topics is None and regex is None else topics
        request = HeartbeatRequest(
            group, member_id, epoch, "client", "/host", instance_id, None, rebalance_ms, topics,
            regex, assignor, owned, sees=sees,
        )  # fmt: skip
        self.carry_out(self.coordinator.consumer_heartbeat(request, token, self.now))
        return token

    def share_beat(
        self,
        member_id: str,
        epoch: int,
        *,
        group: str = "g",
        topics: tuple[str, ...] | None = None,
        rack_id: str | None = None,
    ) -> Token:
        """ShareGroupHeartbeat; with epoch 0 it names the topic ``t``, if it names nothing."""
        token = Token(f"share beat of {member_id}")
        if epoch == 0 and topics is None:
            topics = ("t",)
        request = HeartbeatRequest(
            group, member_id, epoch, "client", "/host", rack_id=rack_id, topics=topics
        )
        self.carry_out(self.coordinator.share_heartbeat(request, token, self.now))
        return token

    def ask_shares(self, ask: Callable[[ShareStates, Token, Now], None]) -> Token:
        """The answer to come to a call of ``share_states``."""
        token = Token("shares")
        now = self.now
        self.carry_out(self.coordinator.of_shares(lambda states: ask(states, token, now)))
        return token

    # Whole stories

    def stable(self, count_: int = 1, **settings: Any) -> list[Joined]:
        """So many members, each with an assignment that is its name; the first one leads."""
        tokens = [self.join(**settings) for _ in range(count_)]
        while not all(token.is_answered for token in tokens):
            first = tokens[0].results[0].member_id if tokens[0].is_answered else None
            if first is not None:  # those who came first join again
                done = [it for it in tokens if it.is_answered]
                again = {id(it): self.join(it.result.member_id, **settings) for it in done}
                tokens = [again.get(id(it), it) for it in tokens]
            else:
                self.wait(self.settings.initial_rebalance_delay_ms)
        joined: list[Joined] = [token.result for token in tokens]
        leader = next(it for it in joined if it.leader == it.member_id)
        parts = {it.member_id: it.member_id.encode() for it in leader.members}
        synced = [self.sync(it, parts if it is leader else None) for it in joined]
        assert [it.result for it in synced] == [
            SyncedMember(NONE, leader.protocol_type, leader.protocol, parts[it.member_id])
            for it in joined
        ]
        return joined
