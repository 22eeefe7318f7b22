import pytest

from streamlog.metadata.nodes.stream_deletions import Deletion, StreamDeletions
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.model import NodeId

ONE, TWO, THREE = (NodeId(number) for number in (1, 2, 3))
ALL = frozenset((ONE, TWO, THREE))
SESSION_MS = 100


def config(name: str = "s", **settings: object) -> StreamConfig:
    return StreamConfig.of(name=name, **settings)


@pytest.fixture
def known() -> StreamDeletions:
    """Of a controller that began with an empty log."""
    deletions = StreamDeletions(SESSION_MS)
    deletions.started(0)
    return deletions


def delete(known: StreamDeletions, deleted: StreamConfig, *, logged_ms: int = 0) -> Deletion:
    """Below offset 10; it is logged then."""
    deletion = known.deleted(deleted, 10)
    assert known.unaware(ALL, logged_ms, 10) == ALL
    return deletion


def test_nodes_are_asked_for_until_they_know(known: StreamDeletions) -> None:
    delete(known, config())
    known.applied(ONE, 9)
    assert known.unaware(ALL, 0, 10) == ALL
    known.applied(ONE, 10)
    known.applied(TWO, 11)
    assert known.unaware(ALL, 0, 11) == {THREE}
    known.applied(THREE, 10)
    assert known.unaware(ALL, 0, 11) == frozenset()


def test_a_lease_needs_knowledge_of_the_last_deletion(
    known: StreamDeletions,
) -> None:
    assert known.offset_wanted(ONE, 9) == 0
    known.deleted(config(), 10)
    assert known.offset_wanted(ONE, 9) == 9  # it cannot be known before it is logged
    assert known.offset_wanted(ONE, 10) == known.offset_wanted(ONE, 12) == 10
    known.unaware(ALL, SESSION_MS, 12)
    known.unaware(ALL, 3 * SESSION_MS, 12)
    assert known.offset_wanted(ONE, 12) == 10


def test_leases_from_before_it_was_logged_end(known: StreamDeletions) -> None:
    known.deleted(config(), 10)
    assert known.unaware(ALL, 5_000, 9) == ALL  # a disk took its time
    assert known.unaware(ALL, 6_000, 10) == ALL
    assert known.unaware(ALL, 6_000 + SESSION_MS - 1, 10) == ALL
    assert known.unaware(ALL, 6_000 + SESSION_MS, 10) == frozenset()


def test_a_node_without_a_session_has_no_lease(known: StreamDeletions) -> None:
    delete(known, config())
    assert known.unaware(ALL - {TWO}, 0, 10) == {ONE, THREE}


def test_the_lease_of_a_node_that_is_the_whole_quorum_does_not_end(
    known: StreamDeletions,
) -> None:
    delete(known, config())
    assert known.unaware(ALL, SESSION_MS, 10, alone=ONE) == {ONE}
    assert known.unaware(frozenset(), SESSION_MS, 10, alone=ONE) == {ONE}
    known.applied(ONE, 10)
    assert known.unaware(ALL, SESSION_MS, 10, alone=ONE) == frozenset()


def test_a_deletion_that_was_not_logged_asks_for_nothing(known: StreamDeletions) -> None:
    known.not_deleted(known.deleted(config(), 10))
    assert known.unaware(ALL, 0, 10) == frozenset()
    assert known.offset_wanted(ONE, 9) == 9  # which nodes reach


def test_a_deletion_is_not_waited_for_by_those_before_it(known: StreamDeletions) -> None:
    delete(known, config())
    assert known.unaware(ALL, 0, 10, deleted_below=9) == frozenset()
    assert known.unaware(ALL, 0, 10, deleted_below=10) == ALL


def test_a_new_controller_waits_for_whatever_was_deleted_before(known: StreamDeletions) -> None:
    delete(known, config("old"))
    for node in ALL:
        known.applied(node, 20)
    known.started(20)
    assert known.unaware(ALL, 500, 20, published_to=config("any")) == ALL
    assert known.offset_wanted(ONE, 20) == 20
    known.applied(ONE, 20)
    assert known.unaware(ALL, 500, 20) == {TWO, THREE}
    assert known.unaware(ALL, 500 + SESSION_MS, 20) == frozenset()


@pytest.mark.parametrize(
    ("old", "new", "waits"),
    [
        (config("a"), config("a", subjects=("b",)), True),
        (config("a", subjects=("x.*",)), config("b", subjects=("x.y",)), True),
        (config("a", subjects=("x.y",)), config("b", subjects=("x.>",)), True),
        (config("a", subjects=("x.y",)), config("b", subjects=("x.z",)), False),
        (config("a", subjects=("x",), partitions=3), config("b", subjects=("x.2",)), True),
        (config("a", subjects=("x.1",)), config("b", subjects=("x",), partitions=3), True),
        (
            config("a", subjects=("x",), partitions=3, partition_by="key"),
            config("b", subjects=("x.1",)),
            False,
        ),
    ],
)
def test_only_a_stream_that_gets_the_same_messages_waits(
    known: StreamDeletions, old: StreamConfig, new: StreamConfig, waits: bool
) -> None:
    delete(known, old)
    assert known.unaware(ALL, 0, 10, published_to=new) == (ALL if waits else frozenset())


def test_node_that_was_fenced_needs_knowledge_of_what_others_did_meanwhile(
    known: StreamDeletions,
) -> None:
    known.returned(ONE, 20)
    known.applied(ONE, 19)
    assert known.offset_wanted(ONE, 25) == 20
    assert known.offset_wanted(TWO, 25) == 0
    known.applied(ONE, 20)
    assert known.offset_wanted(ONE, 25) == 0


def test_new_controller_wants_all_that_was_logged_before_it(known: StreamDeletions) -> None:
    known.returned(ONE, 20)
    known.started(22)
    assert known.offset_wanted(ONE, 25) == known.offset_wanted(TWO, 25) == 22
