from streamlog.model import NodeId
from streamlog.partition.replication.repeated_fetch import (
    ASKED_MAX,
    PAUSE_MS,
    RepeatedFetchDetector,
)

TWO, THREE = NodeId(2), NodeId(3)


def test_they_arise_where_one_follower_asks_for_the_same_too_often() -> None:
    doubts = RepeatedFetchDetector()
    for _ in range(ASKED_MAX):
        assert not doubts.arise(TWO, 7, 0)
        assert not doubts.arise(THREE, 7, 0)
    assert doubts.arise(TWO, 7, 0)


def test_who_goes_on_raises_none() -> None:
    doubts = RepeatedFetchDetector()
    for offset in range(3 * ASKED_MAX):
        assert not doubts.arise(TWO, offset, 0)


def test_they_are_followed_up_now_and_then() -> None:
    doubts = RepeatedFetchDetector()
    asked = [doubts.arise(TWO, 7, 0) for _ in range(3 * ASKED_MAX)]
    assert asked.count(True) == 1
    assert not doubts.arise(TWO, 7, PAUSE_MS - 1)
    assert doubts.arise(TWO, 7, PAUSE_MS)
