import pytest

from streamlog.ledger.core.cutter import BlockCut, CutReason, Cutter
from tests.ledger_stream import limits


def fed(cutter: Cutter, *sizes: int) -> list[tuple[int, int, str]]:
    """Records and next offset of each block that records of these sizes end, and why."""
    cuts: list[BlockCut] = []
    for offset, size in enumerate(sizes):
        cuts.extend(cutter.add(offset, bytes(size)))
    return [(cut.record_count, cut.next_offset, cut.reason.value) for cut in cuts]


def test_so_many_records_are_a_block() -> None:
    cutter = Cutter(limits(batch_size=3))
    assert fed(cutter, *[1] * 7) == [(3, 3, "records"), (3, 6, "records")]
    assert cutter.pending_count == 1


def test_a_batch_size_of_one() -> None:
    assert fed(Cutter(limits(1)), 1, 1) == [(1, 1, "records"), (1, 2, "records")]


def test_a_record_that_is_too_much_begins_the_next_block() -> None:
    """The block before goes on at that record: it is not consumed yet."""
    cutter = Cutter(limits(9, preferred=10))
    assert fed(cutter, 4, 6, 1) == [(2, 2, "bytes")]
    assert cutter.pending_count == 1


def test_a_large_record_is_alone() -> None:
    cutter = Cutter(limits(9, preferred=10, absolute=20))
    assert fed(cutter, 4, 11, 30, 10, 1) == [
        (1, 1, "large"),
        (1, 2, "large"),
        (1, 3, "large"),
        (1, 4, "bytes"),
    ]


def test_a_configuration_is_alone() -> None:
    cutter = Cutter(limits(9))
    fed(cutter, 1, 1)
    before, alone = cutter.add_configuration(7, b"config")
    assert (before.end_offset, before.next_offset, before.is_configuration) == (2, 7, False)
    assert (alone.first_offset, alone.next_offset, alone.data) == (7, 8, b"config")
    assert alone.is_configuration
    assert len(cutter.add_configuration(8, b"config")) == 1


def test_what_is_cut_is_no_longer_pending() -> None:
    cutter = Cutter(limits(9, preferred=10))
    fed(cutter, 5, 5)
    (cut,) = cutter.cut(40, CutReason.TIME)
    assert (cut.first_offset, cut.end_offset, cut.next_offset) == (0, 2, 40)
    assert cutter.cut(41, CutReason.TIME) == ()
    assert cutter.add(50, bytes(10)) == ()
    (cut,) = cutter.cut(60, CutReason.TIME)
    assert (cut.first_offset, cut.end_offset, cut.data) == (50, 51, bytes(10))


@pytest.mark.parametrize("batch_size", [1, 2, 5])
def test_nothing_is_lost(batch_size: int) -> None:
    cutter = Cutter(limits(batch_size, preferred=7))
    sizes = [1, 8, 3, 3, 3, 9, 9, 2, 7, 7, 1]
    counts = sum(count for count, _, _ in fed(cutter, *sizes))
    assert counts + cutter.pending_count == len(sizes)
