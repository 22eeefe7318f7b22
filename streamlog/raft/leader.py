"""What a leader does: it serves fetches, announces itself, and resigns when it must. Pure.

A fetch of a replica that has all of the log waits here until there is more of it, or a higher high
watermark (``FetchPurgatory``).
"""

from collections.abc import Callable
from typing import NamedTuple

from streamlog.model import NO_EPOCH, EpochEnd, NodeId
from streamlog.raft.events import Effect, Reply, Send, Token, WentBack
from streamlog.raft.log import RaftLog
from streamlog.raft.messages import BeginEpochRequest, Fault, FetchAnswer, RaftFetchRequest
from streamlog.raft.replica_tracker import ReplicaTracker
from streamlog.raft.settings import RaftSettings
from streamlog.raft.voters import ReplicaKey, VoterSet


class WaitingFetch(NamedTuple):
    """A fetch of a replica that has the whole log. It is answered when the log grows, when the high
    watermark passes the one last sent to that replica, or at ``deadline_ms``.
    """

    token: Token
    request: RaftFetchRequest
    deadline_ms: int


class FetchPurgatory:
    """The waiting fetches, at most one of each replica: a second one releases the first, which is
    answered with nothing new.
    """

    def __init__(self) -> None:
        self._fetches: dict[ReplicaKey, WaitingFetch] = {}
        self._told: dict[ReplicaKey, int] = {}
        """The high watermark that was last sent."""

    def hold(self, token: Token, request: RaftFetchRequest, now_ms: int) -> WaitingFetch | None:
        """The one that has to make room, if there is one."""
        before = self._fetches.get(request.replica)
        self._fetches[request.replica] = WaitingFetch(token, request, now_ms + request.wait_ms)
        return before

    def drop(self, token: Token) -> None:
        for key, fetch in list(self._fetches.items()):
            if fetch.token is token:
                del self._fetches[key]

    def take_due(self, *, log_end: int, high_watermark: int, now_ms: int) -> list[WaitingFetch]:
        """Those that are to be answered now, with this high watermark."""

        def is_due(fetch: WaitingFetch) -> bool:
            return (
                fetch.request.offset < log_end
                or self._told.get(fetch.request.replica, -1) < high_watermark
                or fetch.deadline_ms <= now_ms
            )

        due = self._take(is_due)
        for fetch in due:
            self._told[fetch.request.replica] = high_watermark
        return due

    def take_all(self) -> list[WaitingFetch]:
        return self._take(lambda fetch: True)

    @property
    def deadline_ms(self) -> int | None:
        """Of the first that has waited long enough."""
        return min((fetch.deadline_ms for fetch in self._fetches.values()), default=None)

    def _take(self, is_wanted: Callable[[WaitingFetch], bool]) -> list[WaitingFetch]:
        wanted = [fetch for fetch in self._fetches.values() if is_wanted(fetch)]
        for fetch in wanted:
            del self._fetches[fetch.request.replica]
        return wanted


class LeaderState:
    """Of one leader in one epoch."""

    def __init__(
        self, me: ReplicaKey, log: RaftLog, settings: RaftSettings, epoch: int, now_ms: int
    ) -> None:
        self.epoch = epoch
        self.replicas = ReplicaTracker(me, epoch_start_offset=log.end_offset, now_ms=now_ms)
        self.successor: NodeId | None = None
        """Who is to lead instead, as soon as it has all of the log."""
        self._hand_over_ms = 0
        """It has had time enough then; if it has not been heard of, nothing comes of it."""
        self._me = me
        self._log = log
        self._settings = settings
        self._waiting = FetchPurgatory()
        self._announce_ms = now_ms

    def serve(
        self,
        token: Token,
        request: RaftFetchRequest,
        voters: VoterSet,
        high_watermark: int,
        now_ms: int,
    ) -> list[Effect]:
        """Of this epoch. A fetch that fits is counted, and waits for ``answer_waiting``."""
        if request.replica == self._me:
            return [Reply(token, FetchAnswer(self.epoch, self._me.node_id, Fault.NOT_LEADER))]
        parting = self._parting(request)
        if parting is not None:
            at_most = -1 if parting.diverging is not None else request.offset
            known = self.replicas.heard(request.replica, voters, now_ms, at_most=at_most)
            self.replicas.answered(request.replica, now_ms)
            return [*_went_back(request, known), Reply(token, parting)]
        known = self.replicas.fetched(
            request.replica,
            voters,
            request.offset,
            log_end=self._log.end_offset,
            now_ms=now_ms,
        )
        effects = _went_back(request, known)
        before = self._waiting.hold(token, request, now_ms)
        if before is not None:
            effects.append(Reply(before.token, self._news(high_watermark)))
        return effects

    def abandon(self, token: Token) -> None:
        self._waiting.drop(token)

    def answer_waiting(self, high_watermark: int, now_ms: int) -> list[Effect]:
        """Those for whom there is something new, and those who have waited long enough."""
        due = self._waiting.take_due(
            log_end=self._log.end_offset, high_watermark=high_watermark, now_ms=now_ms
        )
        for fetch in due:
            self.replicas.answered(fetch.request.replica, now_ms)
        return [Reply(fetch.token, self._news(high_watermark)) for fetch in due]

    def announce(self, voters: VoterSet, now_ms: int) -> list[Effect]:
        """To the voters that do not fetch: at once in a new epoch, then again and again."""
        if now_ms < self._announce_ms:
            return []
        interval_ms = self._announce_interval_ms
        self._announce_ms = now_ms + interval_ms
        request = BeginEpochRequest(self.epoch, self._me.node_id)
        silent = self.replicas.silent(voters, now_ms - interval_ms)
        return [Send(node_id, request) for node_id in silent]

    def hand_over(self, successor: NodeId, now_ms: int) -> None:
        self.successor = successor
        self._hand_over_ms = now_ms + self._settings.election_timeout_ms // 2

    def is_to_end(self, voters: VoterSet, now_ms: int) -> bool:
        """Out of touch with a majority (thesis 6.2), or the successor is ready (3.10)."""
        is_out_of_touch = now_ms >= self._patient_until_ms(voters, now_ms)
        return is_out_of_touch or self._is_handed_over(voters, now_ms)

    @property
    def has_begun(self) -> bool:
        """Something was written in this epoch; without that nothing will be committed."""
        return self._log.end_offset > self.replicas.epoch_start_offset

    def is_stuck(self, now_ms: int) -> bool:
        return not self.has_begun and now_ms >= self._begins_until_ms

    def deadline_ms(self, voters: VoterSet, now_ms: int) -> int:
        """When to look again."""
        times = [self._announce_ms, self._patient_until_ms(voters, now_ms)]
        if self._waiting.deadline_ms is not None:
            times.append(self._waiting.deadline_ms)
        if self.successor is not None:
            times.append(self._hand_over_ms)
        if not self.has_begun:
            times.append(self._begins_until_ms)
        return min(times)

    def close(self, answer: FetchAnswer) -> list[Effect]:
        """Waiting requests are answered with that."""
        return [Reply(fetch.token, answer) for fetch in self._waiting.take_all()]

    def _is_handed_over(self, voters: VoterSet, now_ms: int) -> bool:
        """One that is always a little behind will catch up; one that is silent shall not lead."""
        if self.successor is None:
            return False
        if self.replicas.end_of(self.successor, voters) >= self._log.end_offset:
            return True
        if now_ms < self._hand_over_ms:
            return False
        if self.successor in self.replicas.silent(voters, now_ms - self._announce_interval_ms):
            self.successor = None
            return False
        return True

    def _parting(self, request: RaftFetchRequest) -> FetchAnswer | None:
        """What a replica is told whose log is not a part of this one's; None if it is."""
        log = self._log
        if log.start_offset == 0 and request.offset == 0:
            return None
        end = self._epoch_end(request.last_epoch)
        if end is None or request.offset < log.start_offset:
            if log.snapshot is None:
                return FetchAnswer(self.epoch, self._me.node_id, Fault.OUT_OF_RANGE)
            return FetchAnswer(self.epoch, self._me.node_id, snapshot=log.snapshot)
        if end.epoch == request.last_epoch and request.offset <= end.end_offset:
            return None
        return FetchAnswer(self.epoch, self._me.node_id, diverging=end)

    def _epoch_end(self, epoch: int) -> EpochEnd | None:
        """Where ``epoch``, or the newest before it, ends; None if that cannot be told.

        The log knows the epochs of what it has. One that has nothing there ended in the snapshot
        or before, and may not have been at all; of all those only the snapshot's last is known.
        """
        log, start, snapshot = self._log, self._log.start_offset, self._log.snapshot
        end = log.epoch_end(epoch)
        if end.end_offset > start:
            return end
        if start == 0:
            return EpochEnd(NO_EPOCH, 0)
        if snapshot is not None and snapshot.end_offset == start and epoch >= snapshot.epoch:
            return EpochEnd(snapshot.epoch, start)
        return None

    def _news(self, high_watermark: int) -> FetchAnswer:
        return FetchAnswer(
            self.epoch,
            self._me.node_id,
            high_watermark=high_watermark,
            end_offset=self._log.end_offset,
        )

    @property
    def _announce_interval_ms(self) -> int:
        return max(self._settings.timeout_ms_min // 2, 1)

    @property
    def _begins_until_ms(self) -> int:
        return self.replicas.began_ms + self._settings.election_timeout_ms

    def _patient_until_ms(self, voters: VoterSet, now_ms: int) -> int:
        return self.replicas.contact_ms(voters, now_ms) + self._settings.patience_ms


def _went_back(request: RaftFetchRequest, known: int | None) -> list[Effect]:
    return [] if known is None else [WentBack(request.replica, known, request.offset)]
