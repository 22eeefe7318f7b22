"""A leader's view of its replicas."""

from collections.abc import Callable, Iterable

from streamlog.errors import BrokenInvariant
from streamlog.model import NO_EPOCH, NodeId
from streamlog.replication.isr import InSync, IsrProposal, ReplicaStanding
from streamlog.replication.progress import FollowerProgress

Standings = Callable[[NodeId], ReplicaStanding]


class LeaderProgress:
    """How far each replica is, and so what is committed, for one leader epoch."""

    __slots__ = (
        "_counted", "_node_id", "_short", "acknowledged_start", "epoch_start", "followers",
        "high_watermark", "in_sync", "kept_end", "leader_epoch", "log_end", "min_isr",
    )  # fmt: skip

    def __init__(
        self,
        node_id: NodeId,
        isr: Iterable[NodeId],
        *,
        start_offset: int,
        log_end: int | None = None,
        log_start: int = 0,
        leader_epoch: int = 0,
        partition_epoch: int = 0,
        min_isr: int = 1,
        now_ms: int = 0,
    ) -> None:
        """``start_offset``: the high watermark so far; ``log_end``: where the epoch begins;
        ``log_start``: the leader's own, which an earlier leader may have acknowledged.
        """
        self._node_id = node_id
        self.leader_epoch = leader_epoch
        self.high_watermark = start_offset
        """Everything below is on every member of the ISR. Never falls."""
        self.kept_end = start_offset
        """Where the leader counts itself: its end, or under ``sync=commit`` its synced end."""
        self.log_end = start_offset if log_end is None else log_end
        """Where the leader's log ends; no follower can be further."""
        self.epoch_start = self.log_end
        """What lies below was written by leaders before this one."""
        self.acknowledged_start = log_start
        """No log start above it has been acknowledged: who has less is not in sync."""
        self.min_isr = min_isr
        """The high watermark stands still while fewer are in sync."""
        self.in_sync = InSync(isr, partition_epoch)
        self.followers: dict[NodeId, FollowerProgress] = {
            follower: FollowerProgress(now_ms) for follower in self.in_sync.logged - {node_id}
        }
        self._count()

    @property
    def isr(self) -> frozenset[NodeId]:
        """In-sync replicas, as logged; always holds the leader."""
        return self.in_sync.logged

    @property
    def is_short(self) -> bool:
        """Fewer are in sync than must be."""
        return self._short

    def local(self, log_end: int, kept_end: int) -> int:
        """The leader's log has grown, or has been synced further. The new high watermark."""
        if kept_end > log_end:
            raise BrokenInvariant(f"{kept_end} is past the log end offset {log_end}")
        self.log_end = log_end
        self.kept_end = kept_end
        if self._counted or self._short:
            return self._advance()
        self.high_watermark = max(self.high_watermark, kept_end)  # it is alone
        return self.high_watermark

    def follower(
        self,
        node_id: NodeId,
        fetch_offset: int,
        *,
        node_epoch: int = -1,
        now_ms: int = 0,
        log_start: int = 0,
        partition_epoch: int = NO_EPOCH,
    ) -> int:
        """A fetch at ``fetch_offset`` says that all below is there. The new high watermark."""
        if node_id == self._node_id:
            raise BrokenInvariant("a leader does not fetch from itself")
        if fetch_offset <= self.log_end:
            follower = self.followers.get(node_id)
            if follower is None:
                follower = self.followers[node_id] = FollowerProgress()
            follower.fetched(
                fetch_offset,
                node_epoch=node_epoch,
                leader_end=self.log_end,
                now_ms=now_ms,
                log_start=log_start,
                partition_epoch=partition_epoch,
            )
        return self._advance()

    def went_back(
        self, node_id: NodeId, fetch_offset: int, *, node_epoch: int, partition_epoch: int
    ) -> bool:
        """Whether the fetch tells of less than the same process had told before, and the node is in
        the ISR, or may be by a proposal, all the same.

        A follower does so that cannot read what it has from ``fetch_offset`` on. It counts by that
        alone from now on, and must keep what it has until it is, and will be, out of the ISR: the
        controller may be adding it by what it told before.
        """
        follower = self.followers.get(node_id)
        if (
            follower is None
            or node_epoch != follower.node_epoch
            or fetch_offset > follower.end_offset
            or follower.is_outdated(partition_epoch)
        ):
            return False
        if fetch_offset < follower.end_offset:
            follower.went_back(fetch_offset)
        return follower.is_back and node_id in self.in_sync.maximal

    def acknowledge_start(self, offset: int) -> bool:
        """Whether every member of the ISR begins at ``offset`` or above, so that no leader elected
        from it can have what is below; from now on no replica joins that begins lower (KIP-107).
        """
        if self._short or any(it.log_start < offset for it in self._counted):
            return False
        self.acknowledged_start = max(self.acknowledged_start, offset)
        return True

    def set_isr(
        self,
        isr: Iterable[NodeId],
        *,
        partition_epoch: int | None = None,
        min_isr: int | None = None,
        now_ms: int = 0,
    ) -> int:
        """As the metadata has it now, which may raise the high watermark; the new one."""
        if partition_epoch is None:
            partition_epoch = self.in_sync.partition_epoch + 1
        before = self.isr
        self.in_sync.log(isr, partition_epoch)
        if min_isr is not None:
            self.min_isr = min_isr
        for node_id in before - self.isr:
            if node_id in self.followers:
                self.followers[node_id].left(partition_epoch)
        for node_id in self.isr - {self._node_id}:
            self.followers.setdefault(node_id, FollowerProgress(now_ms))
        self._count()
        return self._advance()

    def forget(self, nodes: Iterable[NodeId]) -> None:
        """Their replicas are others now: what those of before had does not count. ``set_isr``
        follows.
        """
        for node_id in nodes:
            self.followers.pop(node_id, None)

    def keep_only(self, replicas: Iterable[NodeId]) -> None:
        """Others are replicas no more."""
        for node_id in self.followers.keys() - set(replicas) - self.in_sync.maximal:
            del self.followers[node_id]

    # What is proposed

    def isr_proposal(
        self, now_ms: int, *, lag_time_ms: int, standings: Standings
    ) -> IsrProposal | None:
        """The proposal that is out, or a new one if the ISR should be another.

        Who has lagged for ``lag_time_ms`` leaves; who keeps up, and has all that is committed and
        all from before this epoch, joins. From now on the high watermark waits for a replica that joins.
        """
        self.in_sync.withdraw_if_void(standings)
        if self.in_sync.proposal is None:
            wanted = self.in_sync.wanted(
                self.followers,
                log_end=self.log_end,
                now_ms=now_ms,
                lag_time_ms=lag_time_ms,
                may_join=lambda it: self._is_level(it) and self._is_live(it, standings),
            )
            if wanted != self.isr:
                members = tuple(
                    (node_id, self._node_epoch(node_id, standings)) for node_id in sorted(wanted)
                )
                self.in_sync.propose(
                    IsrProposal(self.leader_epoch, self.in_sync.partition_epoch, members)
                )
        self._count()
        return self.in_sync.proposal

    def refused(self, proposal: IsrProposal, now_ms: int) -> int:
        """The proposal is refused. The high watermark, which may have waited for it."""
        self.in_sync.refused(proposal, now_ms)
        self._count()
        return self._advance()

    def may_join(self, node_id: NodeId) -> bool:
        """Whether a follower that is not in sync has caught up: a proposal may be due."""
        return node_id not in self.in_sync.maximal and self._is_level(node_id)

    def _is_level(self, node_id: NodeId) -> bool:
        follower = self.followers.get(node_id)
        least = max(self.high_watermark, self.epoch_start)
        return (
            follower is not None
            and follower.end_offset >= least
            and follower.log_start >= self.acknowledged_start
        )

    def _is_live(self, node_id: NodeId, standings: Standings) -> bool:
        """The process that has fetched is the one that is registered, and not fenced."""
        seen = self.followers[node_id].node_epoch
        return standings(node_id) == ReplicaStanding(seen, is_live=True)

    def _node_epoch(self, node_id: NodeId, standings: Standings) -> int:
        follower = self.followers.get(node_id)
        seen = -1 if follower is None else follower.node_epoch
        return seen if seen >= 0 else standings(node_id).node_epoch

    # What is committed

    def _count(self) -> None:
        if self._node_id not in self.isr:
            raise BrokenInvariant("a leader is in its ISR")
        self._counted = tuple(
            self.followers[node_id] for node_id in self.in_sync.maximal - {self._node_id}
        )
        self._short = len(self.isr) < self.min_isr

    def _advance(self) -> int:
        if not self._short:
            least = self.kept_end
            for follower in self._counted:
                least = min(least, follower.end_offset)
            self.high_watermark = max(self.high_watermark, least)
        return self.high_watermark
