from streamlog.raft.failure_detector import FLOOR_INTERVALS, WINDOW, FailureDetector


def detector(*, pause_ms: int = 300, limit_ms: int = 3_000) -> FailureDetector:
    return FailureDetector(pause_ms=pause_ms, interval_ms=30, limit_ms=limit_ms)


CALM_MS = 300 + FLOOR_INTERVALS * 30


def hear(known: FailureDetector, *intervals_ms: int) -> None:
    now_ms = 1_000
    known.heard(now_ms)
    for interval_ms in intervals_ms:
        now_ms += interval_ms
        known.heard(now_ms)


def test_before_anything_is_known_it_waits_as_in_calm_times() -> None:
    assert detector().timeout_ms == CALM_MS


def test_in_calm_times_it_waits_for_the_pause_and_a_few_intervals() -> None:
    known = detector()
    hear(known, *[29, 31] * 100)
    assert known.timeout_ms == CALM_MS


def test_irregular_signs_of_life_make_it_wait_longer() -> None:
    known = detector()
    hear(known, *[10, 90] * 100)
    assert known.timeout_ms == 300 + 50 + 6 * 40


def test_it_never_waits_longer_than_the_limit() -> None:
    known = detector(limit_ms=400)
    hear(known, *[10, 350] * 100)
    assert known.timeout_ms == 400


def test_a_pause_that_was_tolerated_is_learned() -> None:
    known = detector()
    hear(known, *[30] * 100, 330)
    assert known.timeout_ms > CALM_MS


def test_an_outage_is_not_learned() -> None:
    known = detector()
    hear(known, *[30] * 100, 10_000, *[30] * 100)
    assert known.timeout_ms == CALM_MS


def test_an_interval_that_was_interrupted_is_not_learned() -> None:
    known = detector()
    hear(known, *[30] * 100)
    known.interrupted()
    known.heard(10_000)
    assert known.timeout_ms == CALM_MS


def test_what_is_long_ago_is_forgotten() -> None:
    known = detector()
    hear(known, *[10, 90] * 100, *[30] * WINDOW)
    assert known.timeout_ms == CALM_MS
