"""Which nodes are alive, as the controller knows: soft state that dies with its office. Pure.

Heartbeats extend a session; it ends when none came for ``session_timeout_ms``, or when another node has seen
that the process is gone. All times are of the controller's own ``clock``.
"""

from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from streamlog.metadata.commands import ReportLeader
from streamlog.metadata.image.feature_level import LevelRange
from streamlog.metadata.image.metadata_image import MetadataImage, PartitionImage
from streamlog.metadata.nodes.node_condition import agreed_ahead_s
from streamlog.model import NO_LEADER, NodeId

REPORT_WINDOW_MS = 2_000
REPORTED_PARTITIONS_MAX = 10_000
"""Partitions whose leaders are spoken about; beyond it what was said longest ago is forgotten."""


@dataclass(slots=True)
class _Session:
    node_epoch: int
    expiry_ms: int
    was_heard: bool = True
    """False: a new controller takes it over from its predecessor, and knows nothing of its own."""


class _Reported(NamedTuple):
    stream_id: UUID
    partition: int
    leader_epoch: int


class Sessions:
    """The nodes that this controller counts as alive, and what is said of leaders."""

    def __init__(
        self, session_timeout_ms: int, *, report_window_ms: int = REPORT_WINDOW_MS
    ) -> None:
        self._session_timeout_ms = session_timeout_ms
        self._report_window_ms = report_window_ms
        self._sessions: dict[NodeId, _Session] = {}
        self._reports: dict[_Reported, dict[NodeId, int]] = {}  # who said so, and when
        self.levels: dict[NodeId, LevelRange] = {}
        """What nodes have said that they know, of those that have."""
        self._clocks: dict[NodeId, int] = {}
        """How far their clocks are ahead of the controller's, in milliseconds, of those that have said so."""

    def started(self, image: MetadataImage, now_ms: int) -> None:
        """A controller begins: every node that is not fenced gets a whole session from now on."""
        self._reports.clear()
        self.levels.clear()
        self._clocks.clear()
        self._sessions = {
            node.node_id: _Session(node.epoch, now_ms + self._session_timeout_ms, was_heard=False)
            for node in image.nodes.values()
            if not node.fenced
        }

    def heard(self, node_id: NodeId, node_epoch: int, now_ms: int) -> None:
        """A heartbeat, or a registration that was granted; an older registration's is ignored."""
        known = self._sessions.get(node_id)
        if known is not None and node_epoch < known.node_epoch:
            return
        if known is not None and node_epoch > known.node_epoch:
            self.levels.pop(node_id, None)
        self._sessions[node_id] = _Session(node_epoch, now_ms + self._session_timeout_ms)

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
            node_id for node_id, session in self._sessions.items() if now_ms < session.expiry_ms
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
