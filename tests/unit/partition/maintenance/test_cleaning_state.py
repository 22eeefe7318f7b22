from streamlog.partition.maintenance.cleaning_state import Waiting
from streamlog.record.offset_set import OffsetSet


def test_nothing_is_overdue_before_its_time() -> None:
    waiting = Waiting()
    assert not waiting.overdue(OffsetSet([1]), 100.0, 10.0)
    assert not waiting.overdue(OffsetSet([1, 2]), 109.0, 10.0)
    assert list(waiting.overdue(OffsetSet([1, 2]), 110.0, 10.0)) == [1, 2]


def test_what_comes_meanwhile_waits_for_its_own_time() -> None:
    waiting = Waiting()
    waiting.overdue(OffsetSet([1, 2]), 0.0, 10.0)
    waiting.overdue(OffsetSet([1, 2]), 10.0, 10.0)
    assert list(waiting.overdue(OffsetSet([2, 3]), 11.0, 10.0)) == [2]
    assert list(waiting.overdue(OffsetSet([2, 3]), 99.0, 10.0)) == [2]
    assert list(waiting.overdue(OffsetSet([3]), 100.0, 10.0)) == [3]


def test_once_all_is_gone_it_is_counted_anew() -> None:
    waiting = Waiting()
    waiting.overdue(OffsetSet([1]), 0.0, 10.0)
    assert not waiting.overdue(OffsetSet(), 5.0, 10.0)
    assert not waiting.overdue(OffsetSet([4]), 11.0, 10.0)
    assert not waiting.overdue(OffsetSet([4]), 20.0, 10.0)
    assert list(waiting.overdue(OffsetSet([4]), 21.0, 10.0)) == [4]
