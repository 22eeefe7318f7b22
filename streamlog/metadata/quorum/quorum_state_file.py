"""What a voter must never forget: the file ``quorum-state``, Kafka's name for it. Blocking calls.

It belongs to one metadata folder, whose id is in it: a folder that was lost and made again has
another one, and so does not vote in the old one's name (KIP-853).
"""

import json
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from crc32c import crc32c

from streamlog.errors import CorruptFile
from streamlog.log.storage.disk import Disk
from streamlog.model import NodeId
from streamlog.raft.voters import ReplicaKey

NAME = "quorum-state"
_VERSION = 2


@dataclass(frozen=True, slots=True)
class StoredVote:
    """The newest epoch this replica has heard of, and for whom it has voted in it."""

    directory_id: UUID
    epoch: int = 0
    voted_for: ReplicaKey | None = None


def read_vote(disk: Disk, directory: Path) -> StoredVote | None:
    """None where there is no file. CorruptFile if it is not what was written. Raises OSError.

    What it says is durable: a vote that a killed process had only renamed into its place is
    answered again without being written.
    """
    path = directory / NAME
    disk.sync_directory(str(directory))
    try:
        checksum, _, body = disk.read_small(str(path)).partition(b"\n")
    except FileNotFoundError:
        return None
    if checksum != b"crc32c %d" % crc32c(body):
        raise CorruptFile(f"{path}: the checksum is wrong")
    try:
        content = json.loads(body)
        if content["version"] != _VERSION:
            raise CorruptFile(f"{path}: version {content['version']} is not known here")
        voted = content["voted_for"]
        key = voted and ReplicaKey(NodeId(voted["node_id"]), UUID(voted["directory_id"]))
        return StoredVote(UUID(content["directory_id"]), int(content["epoch"]), key or None)
    except (ValueError, KeyError, TypeError):
        raise CorruptFile(f"{path}: is damaged") from None


def write_vote(disk: Disk, directory: Path, vote: StoredVote) -> None:
    """Returns once it is on the disk: a vote is given only after that. Raises OSError."""
    voted = vote.voted_for
    content = {
        "version": _VERSION,
        "directory_id": str(vote.directory_id),
        "epoch": vote.epoch,
        "voted_for": voted and {"node_id": voted.node_id, "directory_id": str(voted.directory_id)},
    }
    body = json.dumps(content).encode() + b"\n"
    disk.write_small(str(directory / NAME), b"crc32c %d\n" % crc32c(body) + body)
