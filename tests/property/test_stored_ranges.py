"""What is read from the object store and what from servers, against a naive look at each offset."""

from itertools import pairwise
from typing import NamedTuple
from uuid import UUID

from hypothesis import event, given
from hypothesis import strategies as st

from streamlog.arrow.location import PartitionRange
from streamlog.arrow.store import stored_ranges
from streamlog.arrow.store.stored_ranges import StoredPartition, parts, stored_end, with_segments
from streamlog.model import TopicPartition
from streamlog.tier.manifest import TieredSegment
from streamlog.tier.object_layout import PartitionPrefix, StreamPrefix
from tests.tier_manifests import tiered_segment

NAME = TopicPartition("orders", 0)
STREAM = UUID(int=7)
ANOTHER = UUID(int=8)
PREFIX = PartitionPrefix(StreamPrefix("cluster", STREAM), 0)


class Plan(NamedTuple):
    """A range as a plan has it, and what the leader and its manifest say."""

    range: PartitionRange
    there: StoredPartition | None


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    base = draw(st.integers(0, 30))
    segments: list[TieredSegment] = []
    for _ in range(draw(st.integers(0, 6))):
        end = base + draw(st.integers(1, 12))
        size_bytes = draw(st.integers(1, 400))
        segments.append(tiered_segment(base, end, size_bytes=size_bytes, upload=base))
        base = end
    tiered_end = segments[-1].end_offset if segments else 0
    # The log may start anywhere by now: the manifest is of before, or retention has been quicker.
    log_start = draw(st.integers(0, tiered_end + 10))
    start = draw(st.integers(0, tiered_end + 20))
    end = start + draw(st.integers(0, 60))
    there = StoredPartition(
        str(draw(st.sampled_from((STREAM, STREAM, ANOTHER)))), PREFIX, log_start
    )
    there = StoredPartition(there.stream_id, PREFIX, log_start, tuple(segments))
    known = draw(st.sampled_from((there, there, there, None)))
    return Plan(PartitionRange(NAME, str(STREAM), start, end), known)


def in_store(offset: int, there: StoredPartition | None) -> bool:
    """As a reader would say who looks for the one offset."""
    if there is None or there.stream_id != str(STREAM) or offset < there.log_start_offset:
        return False
    return any(it.base_offset <= offset < it.end_offset for it in there.segments)


def places(range_: PartitionRange) -> dict[int, bool]:
    """Of each offset of the range whether it is read from the store."""
    found: dict[int, bool] = {}
    for part in parts(range_):
        for offset in range(part.range.start_offset, part.range.end_offset):
            assert offset not in found, "it is read twice"
            found[offset] = part.is_stored
            if part.is_stored:
                assert part.range.stored is not None
                named = [
                    it
                    for it in part.range.stored.segments
                    if it.base_offset <= offset < it.end_offset
                ]
                assert len(named) == 1, "the object is not named"
    return found


def batch_ends(segment: TieredSegment) -> list[tuple[int, int]]:
    """An index of batches of two records, all of one size."""
    ends = range(segment.base_offset + 2, segment.end_offset, 2)
    count = segment.end_offset - segment.base_offset
    return [(it, segment.size_bytes * (it - segment.base_offset) // count) for it in ends]


@given(plans())
def test_each_offset_is_read_once_and_from_where_it_is(plan: Plan) -> None:
    planned = with_segments(plan.range, plan.there)
    expected = {
        it: in_store(it, plan.there) for it in range(plan.range.start_offset, plan.range.end_offset)
    }
    assert places(planned) == expected
    offsets = list(places(planned))
    assert offsets == sorted(offsets)
    last = max((it for it, stored in expected.items() if stored), default=None)
    assert stored_end(planned) == (plan.range.start_offset if last is None else last + 1)
    event(f"{len(set(expected.values()))} places")


@given(plans(), st.integers(1, 300))
def test_pieces_are_the_range_and_have_what_they_need(plan: Plan, piece_bytes: int) -> None:
    planned = with_segments(plan.range, plan.there)
    whole = PartitionRange(
        NAME, str(STREAM), planned.start_offset, stored_end(planned), planned.stored
    )
    if whole.start_offset == whole.end_offset:
        return
    asked: list[TieredSegment] = []

    def ask(segment: TieredSegment) -> list[tuple[int, int]]:
        asked.append(segment)
        return batch_ends(segment)

    pieces = stored_ranges.cut(whole, piece_bytes, ask)
    assert pieces[0].start_offset == whole.start_offset
    assert pieces[-1].end_offset == whole.end_offset
    assert all(a.end_offset == b.start_offset for a, b in pairwise(pieces))
    assert all(it.start_offset < it.end_offset for it in pieces)
    found: dict[int, bool] = {}
    for it in pieces:
        found |= places(it)
        for segment in () if it.stored is None else it.stored.segments:
            assert segment.base_offset < it.end_offset, "it is of no use to the piece"
            assert segment.end_offset > it.start_offset, "it is of no use to the piece"
    assert found == places(whole)
    ends = {end for it in asked for end, _ in batch_ends(it)}
    bases = set() if whole.stored is None else {it.base_offset for it in whole.stored.segments}
    assert {it.end_offset for it in pieces[:-1]} <= ends | bases
    touched = stored_ranges.stored_bytes(whole)
    assert len(pieces) <= max(1, -(-touched // piece_bytes))
    event(f"{min(len(pieces), 4)} pieces")


@given(plans(), st.integers(1, 5))
def test_a_part_of_a_plan_is_read_as_the_plan_says(plan: Plan, count: int) -> None:
    """Tasks of a micro-batch that is carried out again have the offsets of before, and the segments of now."""
    planned = with_segments(plan.range, plan.there)
    start, end = plan.range.start_offset, plan.range.end_offset
    bounds = sorted({start, end, *(start + (end - start) * i // count for i in range(count))})
    found: dict[int, bool] = {}
    for first, stop in pairwise(bounds):
        part = PartitionRange(NAME, str(STREAM), first, stop)
        found |= places(with_segments(part, plan.there))
    assert found == places(planned)
