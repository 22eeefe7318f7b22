import pytest

from streamlog.metadata.commands import CreateStream
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.nodes.former_leaders import FormerLeaders
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.model import NodeId
from tests.controller_world import World

ONE, TWO, THREE = (NodeId(number) for number in (1, 2, 3))
ALL = frozenset((ONE, TWO, THREE))
SESSION_MS = 100


def config(name: str = "s", **settings: object) -> StreamConfig:
    return StreamConfig.of(name=name, **settings)


def deletion(known: FormerLeaders, config: StreamConfig, *, now_ms: int = 0) -> frozenset[NodeId]:
    """The leaders of a stream of this configuration, which is deleted below offset 10."""
    world = World(3)
    world.ask(CreateStream(config=config))
    stream = world.image.stream(config.name)
    known.deleted(stream, 10, now_ms)
    return frozenset(it.leader for it in stream.partitions)


@pytest.fixture
def known() -> FormerLeaders:
    return FormerLeaders(SESSION_MS)


def test_who_led_a_deleted_stream_is_asked_for_until_it_knows(known: FormerLeaders) -> None:
    leaders = deletion(known, config(partitions=2))
    assert len(leaders) == 2
    (other,) = ALL - leaders
    assert known.unaware(0, ALL) == leaders
    assert [known.offset_wanted(it) for it in sorted(leaders)] == [10, 10]
    assert known.offset_wanted(other) == 0
    first, second = sorted(leaders)
    known.applied(first, 9)
    assert known.unaware(0, ALL) == leaders
    known.applied(first, 10)
    assert known.unaware(0, ALL) == {second}
    assert known.offset_wanted(first) == 0
    known.applied(second, 11)
    assert known.unaware(0, ALL) == frozenset()


def test_leases_from_before_the_deletion_end(known: FormerLeaders) -> None:
    """But a node that still does not know gets no other one."""
    (leader,) = deletion(known, config(), now_ms=1_000)
    assert known.unaware(1_000 + SESSION_MS - 1, ALL) == {leader}
    assert known.unaware(1_000 + SESSION_MS, ALL) == frozenset()
    assert known.offset_wanted(leader) == 10


def test_a_node_without_a_session_has_no_lease_and_may_come_back(known: FormerLeaders) -> None:
    (leader,) = deletion(known, config())
    assert known.unaware(0, ALL - {leader}) == frozenset()
    assert known.unaware(0, ALL) == {leader}
    assert known.offset_wanted(leader) == 10


def test_the_lease_of_a_node_that_is_the_whole_quorum_does_not_end(known: FormerLeaders) -> None:
    (leader,) = deletion(known, config())
    assert known.unaware(SESSION_MS, frozenset(), alone=leader) == {leader}
    known.applied(leader, 10)
    assert known.unaware(SESSION_MS, frozenset(), alone=leader) == frozenset()


def test_a_deletion_that_was_not_logged_asks_for_nothing(known: FormerLeaders) -> None:
    world = World(3)
    world.create("s")
    deleted = known.deleted(world.image.stream("s"), 10, 0)
    known.not_deleted(deleted)
    assert known.unaware(0, ALL) == frozenset()
    assert all(known.offset_wanted(it) == 0 for it in ALL)


def test_a_deletion_is_not_waited_for_by_those_before_it(known: FormerLeaders) -> None:
    leaders = deletion(known, config())
    assert known.unaware(0, ALL, deleted_below=9) == frozenset()
    assert known.unaware(0, ALL, deleted_below=10) == leaders


def test_a_new_controller_takes_every_node_for_a_former_leader(known: FormerLeaders) -> None:
    image: MetadataImage = World(3).image
    deletion(known, config("old"))
    known.started(image, 500)
    assert known.unaware(500, ALL) == ALL == known.unaware(500, ALL, published_to=config("any"))
    assert {known.offset_wanted(it) for it in ALL} == {image.offset}
    for node in ALL:
        known.applied(node, image.offset)
    assert known.unaware(500, ALL) == frozenset()


@pytest.mark.parametrize(
    ("old", "new", "is_in_the_way"),
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
    known: FormerLeaders, old: StreamConfig, new: StreamConfig, is_in_the_way: bool
) -> None:
    leaders = deletion(known, old)
    assert known.unaware(0, ALL, published_to=new) == (leaders if is_in_the_way else frozenset())
