"""A survivor made the only voter: what is written, and when it is refused."""

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from streamlog.cli.cluster.force import make_only_voter
from streamlog.config import Settings
from streamlog.errors import ConfigError, InvalidRequest
from streamlog.log.storage.disk import OsDisk
from streamlog.log.storage.file_pool import FilePool
from streamlog.metadata.image.records import (
    MetadataLogBegun,
    MetadataRecord,
    ProducerIdsAllocated,
    QuorumLeader,
    VotersChanged,
)
from streamlog.metadata.nodes.data_dir import DataDir
from streamlog.metadata.quorum.quorum_state_file import StoredVote, read_vote
from streamlog.metadata.quorum.store import MetadataStore, StoredBatch
from streamlog.model import NodeId
from streamlog.raft.voters import ReplicaKey, Voter, VoterSet

ME = NodeId(1)
MINE = uuid.UUID(int=1)


def voters(*ids: int, mine: uuid.UUID | None = MINE) -> VotersChanged:
    return VotersChanged.of(
        VoterSet.of(
            Voter(NodeId(i), f"node-{i}", 9092, mine if i == ME else uuid.UUID(int=i)) for i in ids
        )
    )


Left = Callable[..., Settings]


@pytest.fixture
def left(tmp_path: Path) -> Left:
    """A stopped node: ``left((epoch, record), ..., epoch=…)``, the vote and the log as it left."""

    def make(*batches: tuple[int, MetadataRecord], epoch: int = 5) -> Settings:
        with DataDir.open(tmp_path, ME, cluster_id="c") as folder:
            store = opened(folder)
            store.open()
            store.save_vote(StoredVote(MINE, epoch, ReplicaKey(NodeId(2), uuid.UUID(int=2))))
            for batch_epoch, record in batches:
                store.append([record], batch_epoch, 0)
            store.sync()
            store.close()
        return settings(tmp_path)

    return make


def settings(path: Path, **node: object) -> Settings:
    sections = {"node": {"id": ME, "data_dir": path, **node}, "cluster": {"id": "c"}}
    return Settings.model_validate(sections)


def opened(folder: DataDir) -> MetadataStore:
    disk = OsDisk()
    return MetadataStore(folder.metadata, folder.cluster_id, disk=disk, files=FilePool(disk, 16))


def written(path: Path) -> list[StoredBatch]:
    with DataDir.open(path, ME) as folder:
        store = opened(folder)
        image = store.open()
        found = list(store.batches_from(image.offset))
        store.close()
        return found


def test_it_votes_alone_in_an_epoch_of_its_own(left: Left, tmp_path: Path) -> None:
    node = left((3, voters(1, 2, 3)), (4, QuorumLeader(node_id=NodeId(3))), epoch=5)
    assert make_only_voter(node) == 6
    last = written(tmp_path)[-1]
    assert (last.base_offset, last.epoch) == (2, 6)
    changed, begun = last.records
    assert changed == voters(1)
    assert isinstance(begun, MetadataLogBegun)
    assert read_vote(OsDisk(), tmp_path / "metadata") == StoredVote(MINE, 6)


def test_the_epoch_is_above_that_of_the_log(left: Left) -> None:
    assert make_only_voter(left((9, voters(1, 2, 3)), epoch=9)) == 10


def test_the_newest_voters_hold(left: Left) -> None:
    node = left((1, voters(1, 2, 3)), (2, voters(2, 3)))
    with pytest.raises(InvalidRequest, match=r"node 1 is not a voter; those are \[2, 3\]"):
        make_only_voter(node)


def test_a_voter_that_was_heard_of_under_another_folder_is_none(left: Left) -> None:
    with pytest.raises(InvalidRequest, match="is not a voter"):
        make_only_voter(left((1, voters(1, 2, 3, mine=uuid.UUID(int=7)))))


def test_a_voter_whose_folder_was_never_recorded_is_recorded(left: Left, tmp_path: Path) -> None:
    make_only_voter(left((1, voters(1, 2, 3, mine=None))))
    assert written(tmp_path)[-1].records[0] == voters(1)


def test_what_the_lost_voters_gave_away_is_not_given_again(left: Left, tmp_path: Path) -> None:
    """They may have allocated producer ids, and elected leaders, that this one does not know of."""
    allocated = ProducerIdsAllocated(node_id=ME, end=5_000)
    make_only_voter(left((1, voters(1, 2, 3)), (1, allocated)))
    begun = written(tmp_path)[-1].records[1]
    assert isinstance(begun, MetadataLogBegun)
    assert begun.first_producer_id > 10**15
    assert begun.first_leader_epoch > 10**7


def test_a_damaged_vote_is_not_made_up(left: Left, tmp_path: Path) -> None:
    node = left((1, voters(1, 2, 3)))
    (tmp_path / "metadata" / "quorum-state").write_bytes(b"crc32c 0\n{}")
    with pytest.raises(InvalidRequest, match="the checksum is wrong"):
        make_only_voter(node)
    assert len(written(tmp_path)) == 1


def test_a_node_that_runs_is_left_alone(left: Left, tmp_path: Path) -> None:
    node = left((1, voters(1, 2, 3)))
    with DataDir.open(tmp_path, ME), pytest.raises(ConfigError, match="in use"):
        make_only_voter(node)


def test_an_empty_folder_stays_empty(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="no node's folder"):
        make_only_voter(settings(tmp_path))
    assert list(tmp_path.iterdir()) == []
