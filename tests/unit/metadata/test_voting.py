from uuid import UUID

import pytest

from streamlog.errors import ConfigError, InvalidRequest, NodeNotFound
from streamlog.metadata.entries import NodeImage
from streamlog.metadata.voting import (
    configured_voters,
    fingerprint,
    with_addresses,
    with_directories,
    with_voter,
    without_voter,
)
from streamlog.model import NodeId
from streamlog.raft.voters import ReplicaKey, Voter

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
