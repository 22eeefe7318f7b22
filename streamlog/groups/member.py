"""One member of a group. Pure."""

from dataclasses import dataclass

from streamlog.groups.records import KeptMember
from streamlog.groups.requests import DescribedMember

Protocols = tuple[tuple[str, bytes], ...]


@dataclass(slots=True)
class Member:
    """A member as its coordinator knows it."""

    member_id: str
    instance_id: str | None
    """Of a static member, whose place is kept while it restarts (KIP-345)."""
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Protocols
    """Names, the most wanted first, each with its metadata."""
    assignment: bytes = b""
    is_new: bool = False
    """Joined since the last generation began: nothing but its time to join keeps it alive."""
    joining: object | None = None
    """Token of the JoinGroup that waits for the next generation."""
    syncing: object | None = None
    """Token of the SyncGroup that waits for the leader's."""

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    @property
    def size_bytes(self) -> int:
        """What clients have made us keep, apart from the few fields."""
        return sum(len(name) + len(data) for name, data in self.protocols) + len(self.assignment)

    def metadata(self, protocol: str | None) -> bytes:
        """b"" for a protocol that it does not know."""
        return next((data for name, data in self.protocols if name == protocol), b"")

    def vote(self, candidates: set[str]) -> str:
        """The one that it wants most; it knows all candidates."""
        return next(name for name, _ in self.protocols if name in candidates)

    def kept(self, protocol: str | None, assignment: bytes) -> KeptMember:
        """For the log."""
        return KeptMember(
            self.member_id, self.instance_id, self.client_id, self.client_host,
            self.rebalance_timeout_ms, self.session_timeout_ms, self.metadata(protocol),
            assignment,
        )  # fmt: skip

    def described(self, protocol: str | None) -> DescribedMember:
        return DescribedMember(
            self.member_id, self.instance_id, self.client_id, self.client_host,
            self.metadata(protocol), self.assignment,
        )  # fmt: skip
