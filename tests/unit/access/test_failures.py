from streamlog.access.failures import ADDRESSES_MAX, WINDOW_S, Failures


def test_after_so_many_an_address_has_to_wait_for_the_rest_of_its_minute() -> None:
    seen = Failures(2)
    assert seen.wait_s("a", 0.0) == 0
    seen.add("a", 0.0)
    assert seen.wait_s("a", 10.0) == 0
    seen.add("a", 10.0)
    assert seen.wait_s("a", 20.0) == WINDOW_S - 20.0
    assert seen.wait_s("b", 20.0) == 0
    assert seen.wait_s("a", WINDOW_S) == 0


def test_the_next_failure_after_a_minute_begins_another_window() -> None:
    seen = Failures(1)
    seen.add("a", 0.0)
    seen.add("a", WINDOW_S + 1)
    assert seen.wait_s("a", WINDOW_S + 2) == WINDOW_S - 1
    assert len(seen) == 1


def test_the_oldest_window_makes_room() -> None:
    seen = Failures(1)
    for number in range(ADDRESSES_MAX + 1):
        seen.add(str(number), number / 1_000_000)
    assert len(seen) == ADDRESSES_MAX
    assert seen.wait_s("0", 1.0) == 0
    assert seen.wait_s("1", 1.0) > 0
