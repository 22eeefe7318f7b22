from pathlib import Path
from uuid import UUID

import pytest

from streamlog.errors import CorruptFile
from streamlog.log.storage.disk import OsDisk
from streamlog.metadata.quorum.quorum_state_file import NAME, StoredVote, read_vote, write_vote
from streamlog.model import NodeId
from streamlog.raft.voters import ReplicaKey
from tests.simulation.disk import PowerCut, SimDisk

DISK = OsDisk()
HERE, THERE = UUID(int=1), UUID(int=2)


@pytest.mark.parametrize("voted_for", [None, ReplicaKey(NodeId(2), THERE)])
def test_a_vote_is_remembered(tmp_path: Path, voted_for: ReplicaKey | None) -> None:
    vote = StoredVote(HERE, 5, voted_for)
    write_vote(DISK, tmp_path, vote)
    assert read_vote(DISK, tmp_path) == vote


def test_there_may_be_none(tmp_path: Path) -> None:
    assert read_vote(DISK, tmp_path) is None


def test_a_vote_that_is_read_outlives_a_power_cut() -> None:
    """The process before was killed between the new file's name and the sync of the folder."""
    old, new = StoredVote(HERE, 5), StoredVote(HERE, 5, ReplicaKey(NodeId(2), THERE))
    for seed in range(8):
        disk, folder = SimDisk(seed), Path("/metadata")
        disk.make_directory(str(folder))
        write_vote(disk, folder, old)
        before = sum(disk.calls.values())
        write_vote(disk, folder, old)
        disk.calls_left = sum(disk.calls.values()) - before - 1
        with pytest.raises(PowerCut):
            write_vote(disk, folder, new)
        disk.kill()
        found = read_vote(disk, folder)
        assert found == new
        disk.crash()
        assert read_vote(disk, folder) == found


def test_every_damaged_byte_is_noticed(tmp_path: Path) -> None:
    write_vote(DISK, tmp_path, StoredVote(HERE, 5, ReplicaKey(NodeId(2), THERE)))
    path = tmp_path / NAME
    whole = path.read_bytes()
    for at in range(len(whole) - 1):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(CorruptFile):
            read_vote(DISK, tmp_path)
        path.write_bytes(whole[:at])
        with pytest.raises(CorruptFile):
            read_vote(DISK, tmp_path)
