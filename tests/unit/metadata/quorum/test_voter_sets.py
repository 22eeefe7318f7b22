from uuid import UUID

import pytest

from streamlog.errors import ConfigError, InvalidRequest, NodeNotFound
from streamlog.metadata.image.image_types import NodeImage
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.image.records import NodeRegistered, VotersChanged
from streamlog.metadata.quorum.voter_sets import (
    add_voter,
    configured_voters,
    fingerprint,
    remove_voter,
    tended_voters,
    with_addresses,
    with_directories,
    with_voter,
    without_voter,
)
from streamlog.model import NodeId
from streamlog.raft.voters import ReplicaKey, Voter, VoterSet
from tests.unit.lone_member import key, voters

ONE, TWO, THREE = NodeId(1), NodeId(2), NodeId(3)
FOLDER = UUID(int=7)
VOTERS = configured_voters(["2@b:9092", "1@a:9092"])


def test_voters_are_read_from_texts() -> None:
    voters = configured_voters(["1@node-1.example.org:9092", "2@[::1]:9093"])
    assert list(voters.by_id.values()) == [
        Voter(ONE, "node-1.example.org", 9092),
        Voter(TWO, "::1", 9093),
    ]


@pytest.mark.parametrize(
    "text", ["", "1", "a:9092", "1@a", "1@a:", "0@a:9092", "1@a:0", "1@a:70000", "x@a:1", "1@:1"]
)
def test_what_is_no_voter_is_named(text: str) -> None:
    with pytest.raises(ConfigError, match=r"cluster\.voters"):
        configured_voters([text])


def test_a_voter_is_there_once() -> None:
    with pytest.raises(ConfigError, match="twice"):
        configured_voters(["1@a:1", "1@b:1"])


def test_the_order_of_voters_makes_no_difference() -> None:
    same = configured_voters(["1@a:9092", "2@b:9092"])
    assert fingerprint("c", VOTERS) == fingerprint("c", same)


@pytest.mark.parametrize(
    "other", [["1@a:9092"], ["1@a:9092", "2@b:9093"], ["1@a:9092", "3@b:9092"]]
)
def test_other_voters_are_told_apart(other: list[str]) -> None:
    assert fingerprint("c", VOTERS) != fingerprint("c", configured_voters(other))
    assert fingerprint("c", VOTERS) != fingerprint("d", VOTERS)


def test_a_folder_is_noted_for_voters_alone() -> None:
    voters = with_directories(VOTERS, [ReplicaKey(TWO, FOLDER), ReplicaKey(THREE, FOLDER)])
    assert [it.directory_id for it in voters.by_id.values()] == [None, FOLDER]


def test_a_voter_listens_where_it_has_registered() -> None:
    moved = with_addresses(VOTERS, {TWO: node(TWO), THREE: node(THREE)})
    assert moved.by_id[ONE] == VOTERS.by_id[ONE]
    assert moved.by_id[TWO] == Voter(TWO, "c", 9)
    assert moved.ids == VOTERS.ids


def node(node_id: NodeId) -> NodeImage:
    return NodeImage(node_id, UUID(int=1), "c", 9, None)


def test_one_joins_and_leaves() -> None:
    joined = with_voter(VOTERS, node(THREE), ReplicaKey(THREE, FOLDER))
    assert joined.by_id[THREE] == Voter(THREE, "c", 9, FOLDER)
    assert without_voter(joined, THREE) == VOTERS


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="already"):
        with_voter(VOTERS, node(ONE), ReplicaKey(ONE, FOLDER))
    with pytest.raises(NodeNotFound):
        without_voter(VOTERS, THREE)
    with pytest.raises(InvalidRequest, match="only voter"):
        without_voter(without_voter(VOTERS, TWO), ONE)


# Decisions


def image(voters: VoterSet, *returning: int, nodes: int = 4) -> MetadataImage:
    records = [
        NodeRegistered(node_id=NodeId(it), incarnation=FOLDER, host=f"n{it}", port=1)
        for it in range(1, nodes + 1)
    ]
    changed = VotersChanged.of(voters, map(NodeId, returning))
    return MetadataImage("c").apply_all([*records, changed], offset=0, epoch=1)


def test_the_place_of_the_voters_in_the_log_is_known() -> None:
    assert image(voters(1, 2)).voters_offset == 4


def test_a_voter_is_added_and_removed() -> None:
    (added,) = add_voter(image(voters(1, 2)), THREE, {THREE: key(3)})
    assert added.voter_set.replicas == voters(1, 2, 3).replicas
    with pytest.raises(InvalidRequest, match="closely enough"):
        add_voter(image(voters(1, 2)), THREE, {})
    (removed,) = remove_voter(image(voters(1, 2, 3)), THREE)
    assert removed.voter_set.ids == {1, 2}


def test_a_lost_folder_is_removed_first_and_the_new_one_added_then() -> None:
    new = key(3, directory=33)
    (removal,) = tended_voters(image(voters(1, 2, 3)), [new], {THREE: new})
    assert removal.voter_set.replicas == voters(1, 2).replicas
    assert removal.returning == (THREE,)
    between = image(removal.voter_set, *removal.returning)
    assert tended_voters(between, [], {}) == (), "it has not caught up"
    (addition,) = tended_voters(between, [], {THREE: new})
    assert addition.voter_set.replicas == voters(1, 2).replicas | {new}
    assert addition.returning == ()
    assert tended_voters(image(addition.voter_set), [], {THREE: new}) == ()


def test_whoever_is_to_return_may_be_added_or_given_up_by_hand() -> None:
    between = image(voters(1, 2), 3)
    (added,) = add_voter(between, THREE, {THREE: key(3)})
    assert (added.voter_set.ids, added.returning) == ({1, 2, 3}, ())
    (given_up,) = remove_voter(between, THREE)
    assert (given_up.voter_set.ids, given_up.returning) == ({1, 2}, ())


def test_the_last_voter_is_not_replaced() -> None:
    assert tended_voters(image(voters(1)), [key(1, directory=11)], {}) == ()


def test_what_is_to_return_is_in_a_snapshot() -> None:
    between = image(voters(1, 2), 3)
    again = MetadataImage("c").restored(between.records(), offset=between.offset, epoch=1)
    assert again.returning == {THREE}
