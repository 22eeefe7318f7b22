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
    """None until the leader has heard from it: then any folder of that node may vote."""

    def is_replica(self, key: ReplicaKey) -> bool:
        return self.node_id == key.node_id and self.directory_id in (None, key.directory_id)


@dataclass(frozen=True, slots=True)
class VoterSet:
    """The voters at one offset of the metadata log; it changes by one voter at a time."""

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
    def majority(self) -> int:
        return len(self.by_id) // 2 + 1
