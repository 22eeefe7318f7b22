from streamlog.authn.login_failures import ADDRESSES_MAX, WINDOW_S, LoginFailures, place_of


def fail(seen: LoginFailures, address: str, now_s: float) -> None:
    window = seen.begin(address, now_s)
    assert window is not None
    seen.end(window, failed=True)


def test_after_so_many_an_address_has_to_wait_for_the_rest_of_its_minute() -> None:
    seen = LoginFailures(2)
    assert seen.wait_s("a", 0.0) == 0
    fail(seen, "a", 0.0)
    assert seen.wait_s("a", 10.0) == 0
    fail(seen, "a", 10.0)
    assert seen.begin("a", 20.0) is None
    assert seen.wait_s("a", 20.0) == WINDOW_S - 20.0
    assert seen.wait_s("b", 20.0) == 0
    assert seen.wait_s("a", WINDOW_S) == 0


def test_no_more_are_examined_than_may_fail() -> None:
    seen = LoginFailures(2)
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
    seen = LoginFailures(1)
    late = seen.begin("a", 0.0)
    assert late is not None
    now = seen.begin("a", WINDOW_S)
    assert now is not None
    seen.end(late, failed=True)
    assert seen.wait_s("a", WINDOW_S) == 0
    seen.end(now, failed=True)
    assert seen.wait_s("a", WINDOW_S) == WINDOW_S


def test_the_next_failure_after_a_minute_begins_another_window() -> None:
    seen = LoginFailures(1)
    fail(seen, "a", 0.0)
    fail(seen, "a", WINDOW_S + 1)
    assert seen.wait_s("a", WINDOW_S + 2) == WINDOW_S - 1
    assert len(seen) == 1


def test_the_oldest_window_makes_room() -> None:
    seen = LoginFailures(1)
    for number in range(ADDRESSES_MAX + 1):
        fail(seen, str(number), number / 1_000_000)
    assert len(seen) == ADDRESSES_MAX
    assert seen.wait_s("0", 1.0) == 0
    assert seen.wait_s("1", 1.0) > 0


def test_addresses_that_one_host_may_take_at_will_are_one() -> None:
    seen = LoginFailures(1)
    fail(seen, "2001:db8::1", 0.0)
    assert seen.begin("2001:db8::ffff:2", 0.0) is None
    assert seen.begin("2001:db8:0:1::1", 0.0) is not None
    assert place_of("::ffff:10.0.0.1") != place_of("::ffff:10.0.0.2")
    assert place_of("10.0.0.1") != place_of("10.0.0.2")
    assert place_of("not an address") == "not an address"
