"""Who may vote. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from streamlog.model import NodeId


class ReplicaKey(NamedTuple):
    """A node together with its metadata folder: a wiped disk is another replica, and cannot vote in
    the old one's name (KIP-853).
    """

    node_id: NodeId
    directory_id: UUID


@dataclass(frozen=True, slots=True)
class Voter:
    """A member of the quorum, and where it listens."""

    node_id: NodeId
    host: str
    port: int
    directory_id: UUID | None = None
    """None in the configuration, before there is a log: any folder of that node may vote."""

    def is_replica(self, key: ReplicaKey) -> bool:
        return self.node_id == key.node_id and self.directory_id in (None, key.directory_id)


@dataclass(frozen=True, slots=True)
class VoterSet:
    """The voters at one offset of the metadata log; it changes by one replica at a time."""

    by_id: Mapping[NodeId, Voter] = field(default_factory=dict)

    @classmethod
    def of(cls, voters: Iterable[Voter]) -> "VoterSet":
        return cls({voter.node_id: voter for voter in sorted(voters, key=lambda it: it.node_id)})

    def __contains__(self, key: ReplicaKey) -> bool:
        voter = self.by_id.get(key.node_id)
        return voter is not None and voter.is_replica(key)

    def __len__(self) -> int:
        return len(self.by_id)

    @property
    def ids(self) -> frozenset[NodeId]:
        return frozenset(self.by_id)

    @property
    def is_recorded(self) -> bool:
        """The folder of each is known."""
        return all(voter.directory_id is not None for voter in self.by_id.values())

    @property
    def replicas(self) -> frozenset[ReplicaKey]:
        """Those whose folder is known."""
        return frozenset(
            ReplicaKey(voter.node_id, voter.directory_id)
            for voter in self.by_id.values()
            if voter.directory_id is not None
        )

    @property
    def majority(self) -> int:
        """How many must agree. All of them while a folder is not known: a node could otherwise be
        counted twice, with one folder in one majority and with another one in the next.

        So the first election of a cluster needs every configured voter. Nodes that have lost their
        folders cannot begin a new quorum among themselves while a voter is left that knows better.
        """
        return len(self.by_id) // 2 + 1 if self.is_recorded else len(self.by_id)

    def shares_majorities(self, other: "VoterSet") -> bool:
        """Every majority of these voters and every one of ``other`` have a replica in common.

        Both consist of known replicas. A majority takes the replicas first that the other set does
        not have; the rest of both must not fit side by side into what they share.
        """
        mine, theirs = self.replicas, other.replicas
        shared = len(mine & theirs)
        needed = max(0, self.majority - len(mine - theirs))
        needed += max(0, other.majority - len(theirs - mine))
        return needed > shared
