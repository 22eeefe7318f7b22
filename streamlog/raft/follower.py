"""The copying of a leader's log: one fetch at a time, and what becomes of its answer. Pure."""

from dataclasses import dataclass

from streamlog.errors import CorruptData
from streamlog.model import NO_EPOCH, EpochEnd, NodeId
from streamlog.raft.events import Append, Effect, InstallSnapshot, Send, Truncate
from streamlog.raft.log import RaftLog
from streamlog.raft.messages import FetchAnswer, RaftFetchRequest
from streamlog.raft.settings import RaftSettings
from streamlog.raft.voters import ReplicaKey


@dataclass(frozen=True, slots=True)
class _Sent:
    peer: NodeId
    request: RaftFetchRequest
    at_ms: int


class FollowerState:
    """No fetch goes out while the log is being changed: its offset says what is synced here.

    A leader has one of these as well: its log is synced, too.
    """

    def __init__(self, me: ReplicaKey, log: RaftLog, settings: RaftSettings) -> None:
        self.synced_end = log.end_offset
        """All below is on the disk. What is in the log at the start is."""
        self._me = me
        self._log = log
        self._settings = settings
        self._sent: _Sent | None = None
        self._due_ms = 0
        """No fetch before."""
        self._is_first = True
        """From this peer: it is answered at once, and so shows that the leader is there."""
        self._leader_high_watermark = -1
        self._is_appending = False
        self._is_cut = False
        """In this step: the log does not show it before the next."""
        self._is_installing = False

    @property
    def is_settled(self) -> bool:
        """The log is on the disk, and stays as it is until the leader wants it otherwise."""
        is_changing = self._is_appending or self._is_cut or self._is_installing
        return not is_changing and self.synced_end >= self._log.end_offset

    @property
    def deadline_ms(self) -> int | None:
        """When to look again, for a replica that fetches; None: what it waits for is an event."""
        if self._sent is not None:
            return self._expires_ms(self._sent)
        return self._due_ms if self.is_settled or self._is_cut else None

    @property
    def committed_offset(self) -> int:
        """What is here, synced, and committed as the leader said."""
        return min(self._leader_high_watermark, self.synced_end)

    def begin_step(self) -> None:
        """All effects of the step before have been carried out."""
        self._is_cut = False

    def turn(self, now_ms: int) -> None:
        """To another leader, or to none: what the one before may still answer is void."""
        self._sent = None
        self._is_first = True
        self._due_ms = now_ms
        self._leader_high_watermark = -1

    def fetch_from(self, peer: NodeId, *, epoch: int, wait_ms: int, now_ms: int) -> Send | None:
        """The next fetch, if it is time. ``wait_ms``: at the leader, for news."""
        if self._sent is not None and now_ms >= self._expires_ms(self._sent):
            self._sent = None
        if self._sent is not None or now_ms < self._due_ms or not self.is_settled:
            return None
        log = self._log
        wait_ms = 0 if self._is_first else wait_ms
        request = RaftFetchRequest(epoch, self._me, log.end_offset, log.last_epoch, wait_ms)
        self._sent = _Sent(peer, request, now_ms)
        return Send(peer, request)

    def awaits(self, peer: NodeId, request: RaftFetchRequest) -> bool:
        """That very one, not one before it that asked for the same."""
        sent = self._sent
        return sent is not None and sent.peer == peer and sent.request is request

    def failed(self, now_ms: int) -> None:
        """Try again, after a pause."""
        self._sent = None
        self._due_ms = now_ms + self._settings.moment_ms

    def take(self, answer: FetchAnswer, high_watermark: int, now_ms: int) -> list[Effect]:
        """What the leader answers to the fetch that was sent, without fault."""
        assert self._sent is not None, "an answer is awaited"
        sent, self._sent = self._sent, None
        self._due_ms = now_ms
        if answer.diverging is not None:
            return self._cut(answer.diverging, high_watermark, now_ms)
        if answer.snapshot is not None:
            if answer.snapshot.end_offset <= high_watermark:  # of no use, and never asked for
                self.failed(now_ms)
                return []
            self._is_installing = True
            return [InstallSnapshot(sent.peer, answer.snapshot)]
        self._pause_without_news(sent, answer, now_ms)
        self._leader_high_watermark = max(self._leader_high_watermark, answer.high_watermark)
        if not answer.records:
            return []
        self._is_appending = True
        return [Append(answer.records)]

    def synced(self, end_offset: int) -> None:
        """The log is on the disk up to there."""
        self._is_appending = False
        self.synced_end = max(self.synced_end, min(end_offset, self._log.end_offset))

    def installed(self, end_offset: int, now_ms: int) -> None:
        self._is_installing = False
        self._is_appending = False
        self.synced_end = end_offset
        self._due_ms = now_ms

    def not_installed(self, now_ms: int) -> None:
        self._is_installing = False
        self.failed(now_ms)

    def _cut(self, diverging: EpochEnd, high_watermark: int, now_ms: int) -> list[Effect]:
        """To where the histories part (KIP-101): the smaller of both ends of the newest epoch that
        both may have. It may take several rounds, each with a smaller epoch or end.
        """
        end_offset = diverging.end_offset
        if diverging.epoch != NO_EPOCH:
            end_offset = min(end_offset, self._log.epoch_end(diverging.epoch).end_offset)
        if end_offset >= self._log.end_offset:  # nothing parts there
            self.failed(now_ms)
            return []
        if end_offset < high_watermark:
            raise CorruptData(
                f"the leader's history parts from this one at {end_offset}, below what is committed"
                f" ({high_watermark}): a majority of the voters has lost its metadata"
            )
        self.synced_end = min(self.synced_end, end_offset)
        self._is_cut = True
        return [Truncate(end_offset)]

    def _pause_without_news(self, sent: _Sent, answer: FetchAnswer, now_ms: int) -> None:
        """A leader that answers at once, without records, is not asked again at once."""
        is_news = bool(answer.records) or answer.high_watermark > self._leader_high_watermark
        has_waited = now_ms - sent.at_ms >= sent.request.wait_ms // 2 > 0
        if not (is_news or has_waited or self._is_first):
            self._due_ms = now_ms + self._settings.moment_ms
        self._is_first = False

    def _expires_ms(self, sent: _Sent) -> int:
        return sent.at_ms + sent.request.wait_ms + self._settings.request_timeout_ms
