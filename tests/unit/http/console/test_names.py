"""Lists of names that are moved along are what making them again would give."""

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from streamlog.http.console import names
from streamlog.http.console.names import FilteredNames, RankedNames
from streamlog.http.console.overview import Overview
from streamlog.metadata.image.metadata_image import MetadataImage
from tests.page_world import image, partition, stream

NAMES = [f"{letter}{number}" for letter in "ab" for number in range(6)]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("turn"), st.sampled_from(NAMES), st.just(0)),
        st.tuples(st.just("value"), st.sets(st.sampled_from(NAMES)), st.integers(0, 3)),
        st.tuples(st.just("build"), st.none(), st.integers(0, 1)),
    ),
    max_size=30,
)


def turned(known: MetadataImage, name: str) -> MetadataImage:
    """With the stream, or without it if it is there."""
    is_there = name in known.streams
    streams = (
        known.streams.delete(name)
        if is_there
        else known.streams.set(name, stream(name, partition()))
    )
    return replace(
        known, streams=streams, offset=known.offset + 1, parent_offset=known.offset,
        touched=frozenset({name}),
    )  # fmt: skip


@settings(max_examples=300)
@given(STEPS, st.sampled_from((1, 3, 100)), st.booleans())
def test_names(steps: list[tuple[str, Any, int]], at_once: int, descending: bool) -> None:
    before = names.SET_AT_ONCE, names.BUILT_AT_ONCE
    names.SET_AT_ONCE, names.BUILT_AT_ONCE = at_once, 2  # type: ignore[misc]
    try:
        play(steps, descending=descending)
    finally:
        names.SET_AT_ONCE, names.BUILT_AT_ONCE = before  # type: ignore[misc]


def play(steps: list[tuple[str, Any, int]], *, descending: bool) -> None:
    known, overview = image(stream("a0", partition()), stream("b1", partition())), Overview()
    values = dict.fromkeys(NAMES, 0)
    ordered = RankedNames(values.__getitem__, descending=descending)
    filtered = FilteredNames("a")
    building = None

    def follow() -> None:
        overview.follow(known)
        assert overview.work()

    follow()
    for kind, what, value in steps:
        if kind == "turn":
            known = turned(known, what)
            follow()
        elif kind == "value":
            values |= dict.fromkeys(what, value)
            ordered.update(what)
        elif building is None:
            building = ordered.build(overview)
            if value:
                next(building, None)
        else:
            next(building, None)
        assert filtered.follow(overview) == [it for it in sorted(known.streams) if "a" in it]
    for _ in building or ():
        pass
    for _ in ordered.build(overview):
        pass
    ordered.follow(overview)
    sign = -1 if descending else 1
    expected = sorted(known.streams, key=lambda it: (sign * values[it], it))
    assert ordered.some(0, 100, None) == expected
    assert ordered.some(1, 2, None) == expected[1:3]
    assert ordered.some(1, 2, lambda it: "a" in it) == [it for it in expected if "a" in it][1:3]
