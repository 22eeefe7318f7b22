"""What a quorum promises, looked at while it lives. Told of all that is said and done; raises
Violation.
"""

from typing import TYPE_CHECKING

from streamlog.model import NodeId
from streamlog.raft.events import Role
from streamlog.raft.messages import Answer, RaftFetchRequest, Request, VoteAnswer, VoteRequest
from streamlog.raft.voters import ReplicaKey
from tests.quorum_log import Entry, Payload

if TYPE_CHECKING:
    from tests.quorum_host import Host
    from tests.quorum_world import World


class Violation(AssertionError):
    """What the quorum promises is not so."""


class Checkers:
    """What Raft promises (figure 3 of the paper), and what its members owe to each other."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self.committed_entries: list[Entry] = []
        self.leaders: dict[int, tuple[NodeId, int]] = {}
        self._votes: dict[tuple[ReplicaKey, int], ReplicaKey] = {}
        self._entries: dict[tuple[int, int], tuple[Payload, int | None]] = {}
        """By offset and epoch: what it is, and the epoch before it, where that is in the log."""
        self._high_watermarks: dict[NodeId, int] = {}

    def started(self, host: "Host") -> None:
        self._high_watermarks[host.node_id] = host.raft.high_watermark

    def role_changed(self, host: "Host", role: Role, epoch: int) -> None:
        """Election safety, leader completeness."""
        if role is not Role.LEADER:
            return
        if self.leaders.setdefault(epoch, (host.node_id, host.life)) != (host.node_id, host.life):
            raise Violation(f"{self.leaders[epoch]} and {host.node_id} lead in epoch {epoch}")
        log = host.disk.log
        if log.prefix(log.end_offset)[: len(self.committed_entries)] != self.committed_entries:
            raise Violation(f"{host.node_id} leads in {epoch} without all that is committed")

    def saved(self, host: "Host", epoch: int, voted_for: ReplicaKey | None) -> None:
        if epoch < host.disk.epoch:
            raise Violation(f"{host.node_id} goes back to epoch {epoch}")
        if voted_for is not None:
            self._voted(host.key, epoch, voted_for)

    def sent(self, host: "Host", request: Request) -> None:
        """A candidate has voted for itself; who fetches has synced what it says."""
        if isinstance(request, VoteRequest) and not request.pre_vote:
            self._voted(host.key, request.epoch, host.key)
            if (host.disk.epoch, host.disk.voted_for) != (request.epoch, host.key):
                raise Violation(f"{host.node_id} stands before its vote is on the disk")
        if isinstance(request, RaftFetchRequest) and request.offset > host.disk.log.durable_end:
            raise Violation(f"{host.node_id} says that it has synced what it has not")

    def replied(self, host: "Host", request: Request, answer: Answer) -> None:
        if isinstance(answer, VoteAnswer) and answer.granted:
            assert isinstance(request, VoteRequest)
            if not request.pre_vote:
                self._voted(host.key, request.epoch, request.candidate)
                if (host.disk.epoch, host.disk.voted_for) != (request.epoch, request.candidate):
                    raise Violation(f"{host.node_id} answers before its vote is on the disk")
        if answer.epoch > host.disk.epoch and answer.epoch > host.disk.log.last_epoch:
            raise Violation(f"{host.node_id} speaks of an epoch that is not on its disk")

    def stepped(self, host: "Host") -> None:
        """Log matching: by induction, entries of one offset and epoch have one history."""
        log = host.disk.log
        for offset in range(log.start_offset, log.end_offset):
            entry = log.at(offset)
            before = log.at(offset - 1).epoch if offset > log.start_offset else None
            known = self._entries.get((offset, entry.epoch))
            if known is None:
                self._entries[offset, entry.epoch] = entry.payload, before
            elif known[0] != entry.payload or (
                None not in (before, known[1]) and before != known[1]
            ):
                raise Violation(f"{host.node_id} has another entry at {offset}: {entry}, {known}")

    def committed(self, host: "Host", high_watermark: int) -> None:
        """State machine safety, durability, and a high watermark that never falls."""
        if high_watermark < self._high_watermarks[host.node_id]:
            raise Violation(f"the high watermark of {host.node_id} falls to {high_watermark}")
        self._high_watermarks[host.node_id] = high_watermark
        entries = host.disk.log.prefix(high_watermark)
        if len(entries) < high_watermark:
            raise Violation(f"{host.node_id} has not got all of {high_watermark}")
        shared = min(len(entries), len(self.committed_entries))
        if entries[:shared] != self.committed_entries[:shared]:
            raise Violation(f"{host.node_id} has something else committed below {shared}")
        if len(entries) > shared:
            self.committed_entries = entries
            self._check_majority(host, entries)

    def _check_majority(self, host: "Host", entries: list[Entry]) -> None:
        """On the disks of a majority of the voters, as who commits knows them."""
        holders = 0
        for voter in host.voters.by_id.values():
            other = self._world.hosts[voter.node_id]
            for disk in (other.disk, *other.absent):  # it may have said so before it went
                if disk.directory_id == voter.directory_id:
                    end = min(disk.log.durable_end, len(entries))
                    holders += disk.log.prefix(end) == entries
        if holders < host.voters.majority:
            raise Violation(f"{host.node_id} commits {len(entries)}, which {holders} have")

    def _voted(self, voter: ReplicaKey, epoch: int, candidate: ReplicaKey) -> None:
        known = self._votes.setdefault((voter, epoch), candidate)
        if known != candidate:
            raise Violation(f"{voter} votes in {epoch} for {known} and for {candidate}")
