import pytest

from streamlog.raft.settings import RaftSettings


@pytest.mark.parametrize(
    "wrong",
    [
        {"election_timeout_ms": 0},
        {"request_timeout_ms": 0},
        {"fetch_wait_max_ms": -1},
    ],
)
def test_no_time_is_negative_and_no_timeout_is_zero(wrong: dict[str, int]) -> None:
    with pytest.raises(AssertionError):
        RaftSettings(**wrong)


def test_the_shortest_times() -> None:
    shortest = RaftSettings(election_timeout_ms=1, request_timeout_ms=1, fetch_wait_max_ms=0)
    assert (shortest.wait_ms, shortest.moment_ms, shortest.patience_ms) == (0, 1, 1)


def test_a_fetch_waits_for_half_of_the_election_timeout_at_most() -> None:
    assert RaftSettings(election_timeout_ms=600).wait_ms == 300
    assert RaftSettings(election_timeout_ms=2_000).wait_ms == 500
    assert RaftSettings(election_timeout_ms=600).moment_ms == 30
    assert RaftSettings(election_timeout_ms=600).patience_ms == 900
