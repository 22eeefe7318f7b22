"""Events of a key in a window: as many as the limit allows, and each other one counted."""

from hypothesis import given
from hypothesis import strategies as st

from streamlog.rate_limit import CloseLog, WindowLimit

KEYS_MAX = 1_000
WINDOW_S = 60.0


def lines(lines_max: int, window_s: float = 10) -> WindowLimit[str]:
    return WindowLimit(lines_max, window_s=window_s, keys_max=KEYS_MAX, overflow="others")


def logins(failures_max: int) -> WindowLimit[str]:
    return WindowLimit(failures_max, window_s=WINDOW_S, keys_max=KEYS_MAX)


def test_so_many_events_and_then_a_number() -> None:
    limit = lines(3)
    admitted = [limit.admit("a", second) for second in range(8)]
    assert admitted == [True] * 3 + [False] * 5
    assert limit.ended(9) == []
    assert not limit.admit("a", 10), "the window is over, but not reported"
    ((key, window),) = limit.ended(10)
    assert (key, window.began_s, window.counted, window.refused) == ("a", 0, 3, 6)
    assert limit.ended(11) == []
    assert limit.admit("a", 11), "another window"


def test_keys_do_not_count_for_each_other() -> None:
    limit = lines(1)
    assert limit.admit("a", 0)
    assert limit.admit("b", 0)
    assert not limit.admit("b", 0)


def test_keys_beyond_the_limit_count_as_one() -> None:
    limit = lines(1)
    for number in range(KEYS_MAX):
        assert limit.admit(str(number), 0)
    assert limit.admit("x", 0)
    assert not limit.admit("y", 0)
    assert [(key, it.refused) for key, it in limit.ended(1e9) if it.refused] == [("others", 1)]


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0, 5))), st.integers(1, 4))
def test_each_event_is_admitted_or_counted(events: list[tuple[int, float]], lines_max: int) -> None:
    limit, now, admitted, refused = lines(lines_max, 7), 0.0, 0, 0
    for event, pause in events:
        now += pause
        refused += sum(it.refused for _, it in limit.ended(now))
        admitted += limit.admit(str(event), now)
    refused += sum(it.refused for _, it in limit.ended(now, all_of_them=True))
    assert admitted + refused == len(events)


def fail(seen: WindowLimit[str], address: str, now_s: float) -> None:
    window = seen.begin(address, now_s)
    assert window is not None
    seen.end(window, failed=True)


def test_after_so_many_an_address_has_to_wait_for_the_rest_of_its_minute() -> None:
    seen = logins(2)
    assert seen.wait_s("a", 0.0) == 0
    fail(seen, "a", 0.0)
    assert seen.wait_s("a", 10.0) == 0
    fail(seen, "a", 10.0)
    assert seen.begin("a", 20.0) is None
    assert seen.wait_s("a", 20.0) == WINDOW_S - 20.0
    assert seen.wait_s("b", 20.0) == 0
    assert seen.wait_s("a", WINDOW_S) == 0


def test_no_more_are_examined_than_may_fail() -> None:
    seen = logins(2)
    first, second = seen.begin("a", 0.0), seen.begin("a", 0.0)
    assert first is not None
    assert second is not None
    assert seen.begin("a", 0.0) is None
    assert seen.wait_s("a", 0.0) == 0, "they may yet succeed"
    seen.end(first, failed=False)
    third = seen.begin("a", 0.0)
    assert third is not None
    seen.end(second, failed=True)
    assert seen.begin("a", 0.0) is None
    seen.end(third, failed=True)
    assert seen.wait_s("a", 1.0) == WINDOW_S - 1.0


def test_what_was_begun_in_a_window_that_is_over_does_not_count_in_the_next() -> None:
    seen = logins(1)
    late = seen.begin("a", 0.0)
    assert late is not None
    now = seen.begin("a", WINDOW_S)
    assert now is not None
    seen.end(late, failed=True)
    assert seen.wait_s("a", WINDOW_S) == 0
    seen.end(now, failed=True)
    assert seen.wait_s("a", WINDOW_S) == WINDOW_S


def test_the_next_failure_after_a_minute_begins_another_window() -> None:
    seen = logins(1)
    fail(seen, "a", 0.0)
    fail(seen, "a", WINDOW_S + 1)
    assert seen.wait_s("a", WINDOW_S + 2) == WINDOW_S - 1
    assert len(seen) == 1


def test_the_oldest_window_makes_room() -> None:
    seen = logins(1)
    for number in range(KEYS_MAX + 1):
        fail(seen, str(number), number / 1_000_000)
    assert len(seen) == KEYS_MAX
    assert seen.wait_s("0", 1.0) == 0
    assert seen.wait_s("1", 1.0) > 0


def test_of_a_flood_of_closed_connections_one_line_a_second() -> None:
    log = CloseLog({"unauthenticated", "tls"})
    flood: dict[str, object] = {"peer": "p", "reason": "unauthenticated"}
    assert log.line(flood, 0.0) == flood
    for _ in range(1_000):
        assert log.line(flood, 0.5) is None
    assert log.line({"reason": "tls"}, 0.5) == {"reason": "tls"}, "each reason counts by itself"
    for _ in range(3):
        assert log.line({"reason": "failure"}, 0.5) == {"reason": "failure"}, "nobody floods those"
    assert log.line(flood, 1.0) == {**flood, "more_of_these": 1_000}
    assert log.line(flood, 2.0) == flood
