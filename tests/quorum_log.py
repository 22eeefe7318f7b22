"""A metadata log in memory, which forgets what was not synced."""

import json
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from streamlog.log.leader_epochs import LeaderEpochs
from streamlog.model import EpochEnd, NodeId
from streamlog.raft.messages import SnapshotId
from streamlog.raft.voters import ReplicaKey, Voter, VoterSet

Payload = Any
"""A number, or a dict with ``voters``."""


@dataclass(frozen=True)
class Entry:
    epoch: int
    payload: Payload


@dataclass(frozen=True)
class Snapshot:
    """All that is below its end; as an image it would hold what that comes to."""

    id: SnapshotId
    entries: tuple[Entry, ...]


class MemoryLog:
    """``RaftLog``, with the epochs of the log on disk: of what it still has, it knows them."""

    def __init__(self) -> None:
        self.start_offset = 0
        self.entries: list[Entry] = []
        self.snapshot: SnapshotId | None = None
        self.snapshots: list[Snapshot] = []
        self.durable_end = 0
        """A crash may keep more, and never less."""

    @property
    def end_offset(self) -> int:
        return self.start_offset + len(self.entries)

    @property
    def last_epoch(self) -> int:
        if self.entries:
            return self.entries[-1].epoch
        return -1 if self.snapshot is None else self.snapshot.epoch

    def epoch_end(self, epoch: int) -> EpochEnd:
        if epoch >= self.last_epoch:
            return EpochEnd(self.last_epoch, self.end_offset)
        return self._epochs().end_offset_for(epoch, self.end_offset)

    def at(self, offset: int) -> Entry:
        return self.entries[offset - self.start_offset]

    def append(self, entries: list[Entry]) -> None:
        for entry in entries:
            assert entry.epoch >= self.last_epoch, (entry, self.last_epoch)
            self.entries.append(entry)

    @classmethod
    def of(cls, *entries: Entry) -> "MemoryLog":
        """All of it synced."""
        log = cls()
        log.append(list(entries))
        log.sync()
        return log

    def sync(self) -> None:
        self.durable_end = self.end_offset

    def truncate(self, end_offset: int) -> None:
        assert end_offset >= self.start_offset
        del self.entries[end_offset - self.start_offset :]
        self.durable_end = min(self.durable_end, end_offset)

    def crash(self, kept_end: int) -> None:
        assert self.durable_end <= kept_end <= self.end_offset
        del self.entries[kept_end - self.start_offset :]
        self.sync()

    def take_snapshot(self, end_offset: int, *, keep_log: bool) -> None:
        """Of what is committed. The log begins at its end, or at that of the one before."""
        if end_offset <= (0 if self.snapshot is None else self.snapshot.end_offset):
            return
        snapshot_id = SnapshotId(end_offset, self.at(end_offset - 1).epoch)
        taken = Snapshot(snapshot_id, tuple(self.prefix(end_offset)))
        start = end_offset
        if keep_log:
            start = self.start_offset if self.snapshot is None else self.snapshot.end_offset
        self.snapshot = snapshot_id
        self.snapshots = [*self.snapshots[-1:], taken]
        del self.entries[: start - self.start_offset]
        self.start_offset = start
        self.durable_end = max(self.durable_end, start)

    def install(self, snapshot: Snapshot) -> None:
        self.snapshots = [snapshot]
        self.snapshot = snapshot.id
        self.entries = []
        self.start_offset = self.durable_end = snapshot.id.end_offset

    def prefix(self, end_offset: int) -> list[Entry]:
        """All there has been, also what is only in a snapshot."""
        known = list(self.snapshots[-1].entries)[: self.start_offset] if self.snapshots else []
        assert len(known) == self.start_offset, "the snapshots reach the log"
        return known + self.entries[: end_offset - self.start_offset]

    def _epochs(self) -> LeaderEpochs:
        epochs = LeaderEpochs()
        for offset, entry in enumerate(self.entries, self.start_offset):
            epochs.assign(entry.epoch, offset)
        return epochs


@dataclass
class MemoryDisk:
    """What outlives a process."""

    directory_id: uuid.UUID
    log: MemoryLog = field(default_factory=MemoryLog)
    epoch: int = 0
    voted_for: ReplicaKey | None = None


def encode(entries: list[Entry]) -> bytes:
    return json.dumps([[it.epoch, it.payload] for it in entries]).encode() if entries else b""


def decode(data: bytes | memoryview) -> list[Entry]:
    return [Entry(epoch, payload) for epoch, payload in json.loads(bytes(data))]


def voters_payload(voters: VoterSet, returning: Iterable[NodeId] = ()) -> Payload:
    return {
        "voters": [
            [it.node_id, it.directory_id and it.directory_id.hex] for it in voters.by_id.values()
        ],
        "returning": sorted(returning),
    }


def voters_of(payload: Payload) -> VoterSet | None:
    if not isinstance(payload, dict):
        return None
    return VoterSet.of(
        Voter(NodeId(node_id), f"n{node_id}", 1, directory and uuid.UUID(directory))
        for node_id, directory in payload["voters"]
    )


def configured(*ids: int) -> VoterSet:
    return VoterSet.of(Voter(NodeId(it), f"n{it}", 1) for it in ids)


def recorded(voters: VoterSet, *keys: ReplicaKey) -> VoterSet:
    """With these replicas for their nodes."""
    known = {key.node_id: key.directory_id for key in keys}
    return VoterSet.of(
        replace(it, directory_id=known.get(it.node_id, it.directory_id))
        for it in voters.by_id.values()
    )
