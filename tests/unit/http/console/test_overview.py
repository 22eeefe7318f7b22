"""What is kept from one image to the next is what counting all of the new one would give."""

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from streamlog.http.console.overview import WANTS, Overview, PartitionCounts, wants
from streamlog.metadata.image.metadata_image import MetadataImage, PartitionImage, StreamImage
from streamlog.model import NO_LEADER, NodeId, TopicPartition
from tests.page_world import ALL, ONE, THREE, TWO, image, partition, stream

NAMES = st.sampled_from("abcd")
PARTITIONS = st.lists(
    st.builds(
        partition,
        leader=st.sampled_from((NO_LEADER, ONE, TWO, THREE)),
        isr=st.sampled_from(((), (1,), (1, 2), ALL)),
        replicas=st.sampled_from((ALL, (1,))),
    ),
    min_size=1,
    max_size=4,
).map(tuple)
KINDS = st.sampled_from(("make", "change", "grow", "set", "remove", "unsaid"))
CHANGES = st.lists(st.tuples(NAMES, KINDS, PARTITIONS), max_size=20)


def changed(
    known: MetadataImage, name: str, kind: str, partitions: tuple[PartitionImage, ...]
) -> MetadataImage:
    """Some of the partitions of a stream that changes stay the very same values."""
    found: StreamImage | None = known.streams.get(name)
    streams = known.streams
    if found is None or kind == "make":
        streams = streams.set(name, stream(name, *partitions))
    elif kind == "remove":
        streams = streams.delete(name)
    elif kind == "set":
        config = found.config.model_copy(update={"min_isr": len(partitions)})
        streams = streams.set(name, replace(found, config=config))
    else:
        kept = found.partitions if kind == "grow" else found.partitions[len(partitions) :]
        more = (*partitions, *kept) if kind == "change" else (*kept, *partitions)
        streams = streams.set(name, replace(found, partitions=more))
    said: dict[str, Any] = {"parent_offset": known.offset, "touched": frozenset({name})}
    if kind == "unsaid":
        said = {"parent_offset": -1, "touched": frozenset()}
    return replace(known, streams=streams, offset=known.offset + 1, **said)


def check(overview: Overview, it: MetadataImage) -> None:
    partitions = [
        (TopicPartition(name, number), each, wants(it.streams[name], number, each))
        for name in sorted(it.streams)
        for number, each in enumerate(it.streams[name].partitions)
    ]
    assert overview.image is it
    assert overview.names == sorted(it.streams)
    assert overview.total == PartitionCounts(
        len(partitions), *(sum(want in found for _, _, found in partitions) for want in WANTS)
    )
    for want in WANTS:
        wanting = [tp for tp, _, found in partitions if want in found]
        assert overview.wanting(want) == {tp.stream for tp in wanting}
        assert overview.some(want, 3) == wanting[:3]
        for name in it.streams:
            assert overview.count(name, want, None) == sum(tp.stream == name for tp in wanting)
    for node_id in ALL:
        led = [tp for tp, each, _ in partitions if each.leader == node_id]
        assert overview.led_by(node_id) == {tp.stream for tp in led}
        assert overview.unled(frozenset({node_id})) == len(led)
        for name in it.streams:
            assert overview.count(name, "", node_id) == sum(tp.stream == name for tp in led)
    silent = frozenset({ONE, TWO})
    unled = [tp for tp, each, _ in partitions if each.leader in silent or each.leader == NO_LEADER]
    assert overview.some("leaderless", 3, silent) == unled[:3]


@settings(max_examples=200)
@given(CHANGES, st.lists(st.booleans(), min_size=20, max_size=20), st.integers(1, 5))
def test_it_is_what_counting_all_would_give(
    changes: list[tuple[str, str, tuple[PartitionImage, ...]]], looks: list[bool], most: int
) -> None:
    """Whether each image is followed to its end, in part, or not at all."""
    overview, it = Overview(), image()
    for (name, kind, partitions), looked in zip(changes, looks, strict=False):
        it = changed(it, name, kind, partitions)
        if looked:
            overview.follow(it)
            overview.work(most)
        if looked and len(partitions) > 1:
            while not overview.work(most):
                pass
            check(overview, it)
    overview.follow(it)
    while not overview.work(most):
        pass
    check(overview, it)


def test_partitions_that_are_the_same_are_not_counted_again() -> None:
    overview = Overview()
    many = [partition()] * 1_000
    it = image(stream("s", *many))
    overview.follow(it)
    overview.work()
    before = overview.worked
    one = replace(it.streams["s"], partitions=(partition(isr=(1,)), *many[1:]))
    overview.follow(
        replace(
            it,
            streams=it.streams.set("s", one),
            offset=it.offset + 1,
            parent_offset=it.offset,
            touched=frozenset("s"),
        )
    )
    assert overview.work()
    assert overview.total.under_replicated == 1
    assert overview.worked - before < 100


def test_nodes_that_lead_nothing_are_forgotten() -> None:
    overview = Overview()
    for leader in (1, 2, NO_LEADER, NodeId(7)):
        it = image(stream("s", partition(leader=leader)))
        overview.follow(it)
        overview.work()
        assert set(overview._led) == {leader} - {NO_LEADER}
