"""What the metadata quorum promises, whatever happens. Told of every step; raises Violation."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING
from uuid import UUID

from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.model import NodeId
from streamlog.raft.events import Role
from streamlog.raft.messages import Answer, Request, VoteAnswer, VoteRequest
from streamlog.raft.voters import ReplicaKey
from streamlog.record.batch import BatchHeader, batches
from tests.simulation.checkers import Violation

if TYPE_CHECKING:
    from tests.simulation.cluster.member import Member


class SingleLeaderPerEpoch:
    """Raft's election safety; and a restarted leader is none in its old epoch."""

    def __init__(self) -> None:
        self.epochs: dict[int, tuple[NodeId, int]] = {}

    def leads(self, epoch: int, node_id: NodeId, life: int) -> None:
        known = self.epochs.setdefault(epoch, (node_id, life))
        if known != (node_id, life):
            raise Violation(f"epoch {epoch} is led by {known} and by {(node_id, life)}")


class VotesNeverTakenBack:
    """A replica gives one vote in an epoch, whatever it goes through."""

    def __init__(self) -> None:
        self._votes: dict[tuple[ReplicaKey, int], ReplicaKey] = {}

    def voted(self, voter: ReplicaKey, epoch: int, candidate: ReplicaKey) -> None:
        known = self._votes.setdefault((voter, epoch), candidate)
        if known != candidate:
            raise Violation(f"{_name(voter)} votes in epoch {epoch} for {known} and {candidate}")


class LogMatching:
    """Batches of one offset and one epoch are the same, wherever they are."""

    def __init__(self) -> None:
        self._batches: dict[tuple[int, int], bytes] = {}

    def holds(self, node_id: NodeId, offset: int, epoch: int, batch: bytes) -> None:
        if self._batches.setdefault((offset, epoch), batch) != batch:
            raise Violation(f"node {node_id} has another batch at {offset} of epoch {epoch}")


class CommittedNeverLost:
    """What one member knows to be committed is what all know to be; each new leader has it all."""

    def __init__(self) -> None:
        self.end_offset = 0
        self._batches: dict[int, bytes] = {}

    def committed(self, node_id: NodeId, offset: int, next_offset: int, batch: bytes) -> None:
        known = self._batches.get(offset)
        if known is None:
            if offset < self.end_offset:
                raise Violation(f"node {node_id} cuts batches at {offset} where others do not")
            self._batches[offset] = batch
            self.end_offset = next_offset
        elif known != batch:
            raise Violation(f"node {node_id} has something else committed at {offset}")

    def batch_below(self, offset: int) -> bytes:
        """The last one that ends there or before."""
        return self._batches[max(it for it in self._batches if it < offset)]

    def leads(self, member: "Member") -> None:
        """Leader completeness."""
        store = member.store
        if store.end_offset < self.end_offset:
            raise Violation(
                f"node {member.host.node_id} leads with {store.end_offset} of {self.end_offset}"
            )
        for header, batch in stored(member, store.start_offset, self.end_offset):
            offset = header.base_offset
            if offset < self.end_offset and self._batches.get(offset, batch) != batch:
                raise Violation(f"node {member.host.node_id} leads with another batch at {offset}")


class ImagesAgree:
    """At one offset there is one image."""

    def __init__(self) -> None:
        self._images: dict[int, MetadataImage] = {}

    def look(self, node_id: NodeId, image: MetadataImage) -> None:
        if image.offset and self._images.setdefault(image.offset, image) != image:
            raise Violation(f"node {node_id} has another image at {image.offset}")


class _Seen:
    """What has been looked at of one life."""

    def __init__(self) -> None:
        self.end_offset = 0
        self.high_watermark = 0


class QuorumCheckers:
    """All of them."""

    def __init__(self) -> None:
        self.leaders = SingleLeaderPerEpoch()
        self.votes = VotesNeverTakenBack()
        self.matching = LogMatching()
        self.kept = CommittedNeverLost()
        self.images = ImagesAgree()
        self.on_moment: Callable[[Member], None] = lambda member: None
        """Something has just been said or done that the member must not go back on."""
        self._seen: dict[NodeId, _Seen] = {}

    def opened(self, member: "Member") -> None:
        seen = self._seen[member.host.node_id] = _Seen()
        seen.end_offset = seen.high_watermark = member.store.start_offset
        self.stepped(member)
        self.committed(member, member.replica.image.offset)

    def stepped(self, member: "Member") -> None:
        """Whatever is new in the log."""
        node_id, store = member.host.node_id, member.store
        seen = self._seen[node_id]
        start = max(min(seen.end_offset, store.end_offset), store.start_offset)
        for header, batch in stored(member, start, store.end_offset):
            self.matching.holds(node_id, header.base_offset, header.leader_epoch, batch)
        seen.end_offset = store.end_offset

    def committed(self, member: "Member", high_watermark: int) -> None:
        node_id, store = member.host.node_id, member.store
        seen = self._seen[node_id]
        if high_watermark < seen.high_watermark:
            raise Violation(f"the high watermark of node {node_id} falls to {high_watermark}")
        start = max(seen.high_watermark, store.start_offset)
        for header, batch in stored(member, start, high_watermark):
            self.kept.committed(node_id, header.base_offset, header.next_offset, batch)
        seen.high_watermark = high_watermark
        self.images.look(node_id, member.replica.image)
        self.on_moment(member)

    def role_changed(self, member: "Member", role: Role, epoch: int) -> None:
        if role is Role.LEADER:
            self.leaders.leads(epoch, member.host.node_id, member.host.life)
            if epoch == max(self.leaders.epochs):  # else it is late, and will soon hear of it
                self.kept.leads(member)
            self.on_moment(member)

    def replied(self, member: "Member", request: object, answer: Answer) -> None:
        if isinstance(answer, VoteAnswer) and answer.granted:
            assert isinstance(request, VoteRequest)
            if not request.pre_vote:
                self.votes.voted(member.replica.key, request.epoch, request.candidate)
                self.on_moment(member)

    def sent(self, member: "Member", request: Request) -> None:
        """A candidate has voted for itself."""
        if isinstance(request, VoteRequest) and not request.pre_vote:
            self.votes.voted(member.replica.key, request.epoch, request.candidate)
            self.on_moment(member)


def stored(member: "Member", offset: int, end_offset: int) -> Iterator[tuple[BatchHeader, bytes]]:
    """The whole batches of a member's log from ``offset`` up to ``end_offset``."""
    disk = member.host.disk
    while offset < end_offset:
        disk.observed = True
        try:
            data = member.store.read(offset, end_offset, 1 << 20)
        finally:
            disk.observed = False
        if not data:
            return
        for header, batch in batches(memoryview(data)):
            yield header, bytes(batch)
            offset = header.next_offset


def _name(key: ReplicaKey) -> str:
    directory: UUID = key.directory_id
    return f"{key.node_id}/{directory.hex[:4]}"
