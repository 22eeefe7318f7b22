"""Who is in sync, for the leader: what is logged, when it shrinks and expands, and what the leader has
proposed and not heard of.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from streamlog.errors import BrokenInvariant
from streamlog.model import NodeId
from streamlog.replication.progress import FollowerProgress

DOUBT_MS: Final = 10_000
"""How long a request without an answer may still be carried out."""


class ReplicaStanding(NamedTuple):
    """What the metadata says of a node."""

    node_epoch: int
    """Of its last registration; -1 if there is none."""
    is_live: bool
    """Not fenced: it may be in sync."""


class IsrProposal(NamedTuple):
    """Another in-sync replica set, on the state of ``partition_epoch``."""

    leader_epoch: int
    partition_epoch: int
    members: tuple[tuple[NodeId, int], ...]
    """With the node epoch in which each was seen, in the order of their ids."""

    @property
    def isr(self) -> frozenset[NodeId]:
        return frozenset(node_id for node_id, _ in self.members)


class InSync:
    """The in-sync replicas, with at most one proposal of others.

    While a proposal is out, the leader must count with every node that may be in the set by it: the
    controller may have granted it already, and elect any member. A proposal ends with a newer
    partition epoch, when a member has registered again, after which it cannot be granted, or when it
    is refused and no attempt at it is left without an answer.
    """

    __slots__ = ("_doubted_ms", "logged", "maximal", "partition_epoch", "proposal")

    def __init__(self, isr: Iterable[NodeId], partition_epoch: int) -> None:
        self.logged = frozenset(isr)
        """As the metadata has it."""
        self.partition_epoch = partition_epoch
        self.proposal: IsrProposal | None = None
        self.maximal = self.logged
        """The replicas that may be in the set."""
        self._doubted_ms: int | None = None  # when an attempt at the proposal got no answer

    def log(self, isr: Iterable[NodeId], partition_epoch: int) -> None:
        """As the metadata has it now; a proposal on an older state is void."""
        if partition_epoch < self.partition_epoch:
            raise BrokenInvariant("a partition epoch never falls")
        if partition_epoch > self.partition_epoch:
            self._end()
        self.partition_epoch = partition_epoch
        self.logged = frozenset(isr)
        self._count()

    def wanted(
        self,
        followers: Mapping[NodeId, FollowerProgress],
        *,
        log_end: int,
        now_ms: int,
        lag_time_ms: int,
        may_join: Callable[[NodeId], bool],
    ) -> frozenset[NodeId]:
        """The ISR as it should be. It shrinks by followers that have not been caught up for
        ``lag_time_ms``, and expands by those that keep up and ``may_join``.
        """
        lagging = {
            node_id
            for node_id, follower in followers.items()
            if follower.lag_ms(log_end, now_ms) > lag_time_ms
        }
        joining = {
            node_id
            for node_id, follower in followers.items()
            if node_id not in self.logged
            and node_id not in lagging
            and follower.is_heard(now_ms, lag_time_ms)
            and may_join(node_id)
        }
        return (self.logged - lagging) | joining

    def propose(self, proposal: IsrProposal) -> None:
        if self.proposal is not None:
            raise BrokenInvariant("one at a time")
        self.proposal = proposal
        self._count()

    def refused(self, proposal: IsrProposal, now_ms: int) -> None:
        """Not granted, and not to be; unless an attempt before this one is still on its way."""
        if proposal == self.proposal:
            doubted_ms = self._doubted_ms
            if doubted_ms is None or now_ms - doubted_ms >= DOUBT_MS:
                self._end()

    def unanswered(self, proposal: IsrProposal, now_ms: int) -> None:
        """Whether it is granted is not known: it is to be asked for again."""
        if proposal == self.proposal:
            self._doubted_ms = now_ms

    def withdraw_if_void(self, standings: Callable[[NodeId], ReplicaStanding]) -> None:
        """The metadata has another registration of a member than the one proposed."""
        if self.proposal is not None and any(
            standings(node_id).node_epoch > node_epoch
            for node_id, node_epoch in self.proposal.members
        ):
            self._end()

    def _end(self) -> None:
        self.proposal = None
        self._doubted_ms = None
        self._count()

    def _count(self) -> None:
        proposed = self.proposal.isr if self.proposal is not None else frozenset[NodeId]()
        self.maximal = self.logged | proposed
