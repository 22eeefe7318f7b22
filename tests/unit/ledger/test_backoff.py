import pytest

from streamlog.errors import ConfigError
from streamlog.ledger.core.channel_follower import Backoff


def test_it_settles_near_the_time_between_successes() -> None:
    """Something comes once a second; what is asked for in vain grows rarer until it fits."""
    backoff, now_ms, next_ms, asked = Backoff(100, 10_000), 0, 1_000, 0
    for _ in range(200):
        now_ms += backoff.ms
        asked += 1
        if now_ms >= next_ms:
            backoff.shrink()
            next_ms = now_ms - now_ms % 1_000 + 1_000
        else:
            backoff.grow()
    assert 400 < now_ms / asked < 1_500


def test_it_stays_in_its_bounds() -> None:
    backoff = Backoff(100, 300)
    backoff.shrink()
    assert backoff.ms == 100
    for _ in range(10):
        backoff.grow()
    assert backoff.ms == 300


@pytest.mark.parametrize("bounds", [(0, 10), (-1, 10), (20, 10)])
def test_bounds_have_to_be_in_order(bounds: tuple[int, int]) -> None:
    with pytest.raises(ConfigError, match="is no range"):
        Backoff(*bounds)
