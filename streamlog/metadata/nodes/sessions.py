"""Which nodes are alive, as the controller knows: soft state that dies with its office. Pure.

Heartbeats extend a session. It ends when none came for as long as ``FailureDetector`` has learned to wait, or when
another node has seen that the process is gone. All times are of the controller's own ``LoopClock``.
"""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

from streamlog.metadata.commands import ReportLeader
from streamlog.metadata.image.feature_level import LevelRange
from streamlog.metadata.image.metadata_image import MetadataImage, PartitionImage
from streamlog.metadata.nodes.node_condition import agreed_ahead_s
from streamlog.metadata.nodes.session_times import SHORT_LEASES_LEVEL, SessionTimes
from streamlog.model import NO_LEADER, NodeId
from streamlog.raft.failure_detector import FailureDetector

REPORT_WINDOW_MS = 2_000
REPORTED_PARTITIONS_MAX = 10_000
"""Partitions whose leaders are spoken about; beyond it what was said longest ago is forgotten."""


RECORDS_PER_MS: Final = 4
"""Metadata records that a node applies in a millisecond, at the least. It says nothing meanwhile."""


@dataclass(slots=True)
class _Session:
    node_epoch: int
    expiry_ms: int
    detector: FailureDetector
    stall_ms: int = 0
    was_heard: bool = True
    """False: a new controller takes it over from its predecessor, and knows nothing of its own."""


class _Reported(NamedTuple):
    stream_id: UUID
    partition: int
    leader_epoch: int


class Sessions:
    """The nodes that this controller counts as alive, and what is said of leaders."""

    def __init__(self, times: SessionTimes, *, report_window_ms: int = REPORT_WINDOW_MS) -> None:
        self._times = times
        self._busy_until_ms = 0
        """Until then nodes may be busy with what was decided."""
        self._report_window_ms = report_window_ms
        self._sessions: dict[NodeId, _Session] = {}
        self._reports: dict[_Reported, dict[NodeId, int]] = {}  # who said so, and when
        self.levels: dict[NodeId, LevelRange] = {}
        """What nodes have said that they know, of those that have."""
        self._clocks: dict[NodeId, int] = {}
        """How far their clocks are ahead of the controller's, in milliseconds, of those that have said so."""

    def started(
        self,
        image: MetadataImage,
        now_ms: int,
        *,
        predecessor: NodeId | None = None,
        silence_ms: int = 0,
        voters: AbstractSet[NodeId] = frozenset(),
    ) -> None:
        """A controller begins: every node that is not fenced gets a whole session from now on.

        ``silence_ms``: for so long at least those who elected it had not heard from any controller, so
        that none could lend a lease. The session of ``predecessor`` counts from then. That of another
        voter, which hears of an election at once, is as short as can be; but where there may be nodes of
        earlier builds, which hold longer leases, no session is.
        """
        self._reports.clear()
        self.levels.clear()
        self._clocks.clear()
        self._sessions = {
            node.node_id: _Session(
                node.epoch,
                now_ms + self._times.session_ms_max,
                self._times.detector(),
                was_heard=False,
            )
            for node in image.nodes.values()
            if not node.fenced
        }
        if image.level >= SHORT_LEASES_LEVEL:
            session_ms = self._times.session_ms_min
            for node_id in self._sessions.keys() & voters:
                self._sessions[node_id].expiry_ms = now_ms + session_ms
            if predecessor in self._sessions:
                left_ms = max(0, session_ms - silence_ms)
                self._sessions[predecessor].expiry_ms = now_ms + left_ms

    def heard(
        self,
        node_id: NodeId,
        node_epoch: int,
        now_ms: int,
        *,
        short_lease: bool = False,
        stall_ms: int = 0,
    ) -> None:
        """A heartbeat, or a registration that was granted; an older registration's is ignored.

        ``short_lease``: the answer lends no lease longer than ``lease_ms``, and the next heartbeat is due
        in ``heartbeat_ms``. A node that has registered sends none before it has opened its logs.

        ``stall_ms``: since then the node's disk owes an answer. By its own word it holds no lease that was lent
        later, so that its session counts from then.
        """
        known = self._sessions.get(node_id)
        if known is not None and node_epoch < known.node_epoch:
            return
        if known is None or node_epoch > known.node_epoch:
            self.levels.pop(node_id, None)
            known = self._sessions[node_id] = _Session(node_epoch, 0, self._times.detector())
        known.was_heard = True
        session_ms = self._times.session_ms_max
        if short_lease:
            known.detector.heard(now_ms)
            session_ms = known.detector.timeout_ms
        known.stall_ms = stall_ms
        known.expiry_ms = max(1, now_ms - stall_ms + session_ms)

    def decided(self, records: int, now_ms: int) -> None:
        """So many metadata records are on their way to the nodes, which are busy with them for a while."""
        until_ms = max(self._busy_until_ms, now_ms) + records // RECORDS_PER_MS
        self._busy_until_ms = min(until_ms, now_ms + self._times.session_ms_max)

    def next_expiry_ms(self, now_ms: int) -> int | None:
        """When the first of the sessions ends that last now, unless its node is heard of."""
        left = (self._expiry_ms(it) for it in self._sessions.values())
        return min((it for it in left if now_ms < it), default=None)

    def _expiry_ms(self, session: _Session) -> int:
        if session.expiry_ms == 0:  # its process is gone
            return 0
        return max(session.expiry_ms, self._busy_until_ms)

    def told(self, node_id: NodeId, levels: LevelRange) -> None:
        """Which feature levels it knows."""
        self.levels[node_id] = levels

    def told_clock(self, node_id: NodeId, ahead_ms: int | None) -> None:
        """How far the node's clock is ahead of the controller's; None: it does not know."""
        if ahead_ms is None:
            self._clocks.pop(node_id, None)
        else:
            self._clocks[node_id] = ahead_ms

    def agreed_ahead_ms(self, now_ms: int) -> int | None:
        """By how much the time that most live nodes agree on is ahead of the controller's clock;
        None where no majority of them does.
        """
        live = self.live(now_ms)
        told = [ahead_ms / 1000 for node_id, ahead_ms in self._clocks.items() if node_id in live]
        ahead_s = agreed_ahead_s(told, len(live))
        return None if ahead_s is None else round(ahead_s * 1000)

    def known_levels(self, now_ms: int, image: MetadataImage) -> dict[NodeId, LevelRange]:
        """Of the nodes whose session lasts, told since they registered last: one that has started
        again may run another streamlog.
        """
        return {
            node_id: self.levels[node_id]
            for node_id in self.live(now_ms) & self.levels.keys()
            if (node := image.nodes.get(node_id)) is not None
            and node.epoch == self._sessions[node_id].node_epoch
        }

    @property
    def stalled(self) -> frozenset[NodeId]:
        """Nodes whose disk owes an answer, as they have told last."""
        return frozenset(node for node, session in self._sessions.items() if session.stall_ms)

    def gone(self, node_id: NodeId) -> None:
        """The process is known to have ended: its session is over. It can be heard of again."""
        known = self._sessions.get(node_id)
        if known is not None:
            known.expiry_ms = 0

    def fenced(self, node_id: NodeId) -> None:
        """The node is fenced in the image: nothing of it is expected any more."""
        self._sessions.pop(node_id, None)

    def live(self, now_ms: int) -> frozenset[NodeId]:
        """Nodes whose session lasts."""
        return frozenset(
            node_id
            for node_id, session in self._sessions.items()
            if now_ms < self._expiry_ms(session)
        )

    @property
    def heard_of(self) -> frozenset[NodeId]:
        """Nodes that this controller has heard of itself; others are alive by hearsay."""
        return frozenset(node for node, session in self._sessions.items() if session.was_heard)

    def hearsay(self, now_ms: int) -> frozenset[NodeId]:
        """Nodes that count as alive, and have not been heard of."""
        return self.live(now_ms) - self.heard_of

    def report(self, image: MetadataImage, report: ReportLeader, now_ms: int) -> bool:
        """Whether, with this one, a majority of the ISR without the leader cannot reach it.

        The words of one window count together. A report about another leader or epoch than the
        image's, or by a node that is not in sync, is worth nothing. A True clears the tally.
        """
        stream = image.streams.get(report.stream)
        node = image.nodes.get(report.node_id)
        if stream is None or not 0 <= report.partition < len(stream.partitions):
            return False
        partition = stream.partitions[report.partition]
        if node is None or node.epoch != report.node_epoch or not _is_about(partition, report):
            return False
        key = _Reported(stream.stream_id, report.partition, report.leader_epoch)
        words = self._reports.pop(key, {})
        words[report.node_id] = now_ms
        others = [it for it in partition.isr if it != partition.leader]
        since_ms = now_ms - self._report_window_ms
        said = [it for it in others if it in words and words[it] > since_ms]
        if 2 * len(said) > len(others):
            return True
        if len(self._reports) >= REPORTED_PARTITIONS_MAX:
            del self._reports[next(iter(self._reports))]
        self._reports[key] = words
        return False


def _is_about(partition: PartitionImage, report: ReportLeader) -> bool:
    return (
        partition.leader == report.leader != NO_LEADER
        and partition.leader_epoch == report.leader_epoch
        and report.node_id in partition.isr
        and report.node_id != report.leader
    )
