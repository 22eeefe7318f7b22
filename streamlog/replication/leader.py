"""A leader's view of its replicas."""

from collections.abc import Iterable

from streamlog.model import NodeId


class LeaderProgress:
    """How far each replica is, and so what is committed, for one leader epoch."""

    def __init__(self, node_id: NodeId, isr: Iterable[NodeId], *, start_offset: int) -> None:
        self._node_id = node_id
        self.isr: frozenset[NodeId] = frozenset()
        """In-sync replicas; always holds the leader."""
        self.high_watermark = start_offset
        """Everything below is on every member of the ISR. Never falls."""
        self.kept_end = start_offset
        """Where the leader counts itself: its end, or under ``sync=commit`` its synced end."""
        self.log_end = start_offset
        """Where the leader's log ends; no follower can be further."""
        self._fetched: dict[NodeId, int] = {}
        """By follower: everything below is on it. One that has not fetched yet is not here."""
        self._alone = True
        self.set_isr(isr)

    def local(self, log_end: int, kept_end: int) -> int:
        """The leader's log has grown, or has been synced further. The new high watermark."""
        assert kept_end <= log_end, (kept_end, log_end)
        self.log_end = log_end
        self.kept_end = kept_end
        return self._advance()

    def follower(self, node_id: NodeId, fetch_offset: int) -> int:
        """A fetch at ``fetch_offset`` says that all below is there. The new high watermark."""
        assert node_id != self._node_id
        if fetch_offset <= self.log_end:
            self._fetched[node_id] = fetch_offset
        return self._advance()

    def set_isr(self, isr: Iterable[NodeId]) -> int:
        """Another in-sync replica set, which may raise the high watermark; the new one."""
        self.isr = frozenset(isr)
        assert self._node_id in self.isr, "a leader is in its ISR"
        self._alone = len(self.isr) == 1
        return self._advance()

    def _advance(self) -> int:
        least = self.kept_end
        if not self._alone:
            for node_id in self.isr:
                if node_id != self._node_id:
                    least = min(least, self._fetched.get(node_id, -1))
        self.high_watermark = max(self.high_watermark, least)
        return self.high_watermark
