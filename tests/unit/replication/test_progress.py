"""When a follower counts as caught up (KIP-16)."""

from streamlog.replication.progress import FollowerProgress


def fetched(progress: FollowerProgress, offset: int, end: int, now_ms: int, epoch: int = 1) -> None:
    progress.fetched(offset, node_epoch=epoch, leader_end=end, now_ms=now_ms)


def test_at_the_end_it_lags_by_nothing_however_long_ago_that_was() -> None:
    progress = FollowerProgress()
    fetched(progress, 10, 10, 100)
    assert progress.lag_ms(10, 99_999) == 0
    assert progress.lag_ms(11, 400) == 300
    assert progress.caught_up_ms == 100


def test_a_busy_one_is_as_late_as_its_fetch_before_the_last() -> None:
    progress = FollowerProgress()
    fetched(progress, 0, 10, 100)
    fetched(progress, 10, 20, 200)
    assert progress.lag_ms(30, 250) == 150, "at 100 the leader ended at 10, where it is now"
    fetched(progress, 20, 30, 300)
    assert progress.lag_ms(40, 350) == 150


def test_one_that_falls_behind_lags_since_it_last_had_all() -> None:
    progress = FollowerProgress()
    fetched(progress, 10, 10, 100)
    for now_ms, end in ((200, 50), (300, 90), (400, 130)):
        fetched(progress, 11, end, now_ms)
    assert progress.lag_ms(130, 400) == 300 - 100 + 100


def test_one_that_never_fetched_lags_since_the_leader_began() -> None:
    assert FollowerProgress(50).lag_ms(7, 60) == 10
    assert FollowerProgress().lag_ms(7, 0) > 1 << 60


def test_another_process_is_not_as_far_as_the_one_before_it() -> None:
    progress = FollowerProgress()
    fetched(progress, 10, 10, 100)
    fetched(progress, 3, 20, 200, epoch=2)
    assert (progress.end_offset, progress.node_epoch) == (3, 2)
    fetched(progress, 12, 20, 300, epoch=2)
    assert progress.lag_ms(20, 300) == 200, "the old one's end is no mark for the new one"


def test_it_is_heard_for_a_while_after_each_fetch() -> None:
    progress = FollowerProgress(100)
    assert not progress.is_heard(100, 1_000)
    fetched(progress, 1, 5, 200)
    assert progress.is_heard(1_200, 1_000)
    assert not progress.is_heard(1_201, 1_000)


def test_what_it_had_by_then_counts_without_a_fetch() -> None:
    progress = FollowerProgress()
    fetched(progress, 10, 10, 100)
    progress.had_all(700)
    assert progress.lag_ms(11, 900) == 200
    assert progress.is_heard(1_700, 1_000)
    progress.had_all(500)
    assert progress.lag_ms(11, 900) == 200, "what is told late takes nothing back"


def test_nothing_is_known_of_one_that_has_not_fetched() -> None:
    progress = FollowerProgress(50)
    assert (progress.end_offset, progress.log_start, progress.node_epoch) == (-1, -1, -1)
    assert progress.lag_ms(7, 50) == 0
    assert progress.lag_ms(7, 40) == 0, "a clock that was read before"


def test_one_that_went_back_is_so_until_it_tells_more() -> None:
    progress = FollowerProgress()
    fetched(progress, 9, 10, 100)
    progress.went_back(5)
    assert (progress.end_offset, progress.is_back) == (5, True)
    fetched(progress, 5, 10, 200)
    assert progress.is_back
    fetched(progress, 6, 10, 300)
    assert not progress.is_back
