import pytest

from streamlog.config import ClusterSection
from streamlog.metadata.image.feature_level import LevelRange
from streamlog.metadata.nodes.session_times import SessionTimes, holds_short_leases
from streamlog.raft.settings import RaftSettings

DRIFT_MAX = 0.03
"""Of a clock; two of them may be wrong in opposite directions."""


HASTY = ClusterSection(heartbeat_interval_ms=30, pause_tolerance_ms=300)


def test_by_default_a_silent_node_has_its_whole_session() -> None:
    times = SessionTimes.of(ClusterSection())
    assert times.session_ms_min == times.session_ms_max == 3_000
    assert times.lease_ms == 2_400


def test_a_silent_node_is_replaced_within_half_a_second_where_that_is_asked_for() -> None:
    times = SessionTimes.of(HASTY)
    assert times.session_ms_min == 420
    assert times.detector().timeout_ms == times.session_ms_min


@pytest.mark.parametrize(
    "settings",
    [
        ClusterSection(),
        HASTY,
        ClusterSection(pause_tolerance_ms=0),
        ClusterSection(pause_tolerance_ms=20_000),
        ClusterSection(heartbeat_interval_ms=200, leader_lease_ms=1_200, session_timeout_ms=1_500),
        ClusterSection(leader_lease_ms=90_000, session_timeout_ms=120_000),
    ],
)
def test_a_lease_ends_before_the_session(settings: ClusterSection) -> None:
    """Also if the controller was not confirmed since, and the clocks drift apart."""
    times = SessionTimes.of(settings)
    unconfirmed_ms = (times.session_ms_min - times.lease_ms) / 2
    lease_ms = (times.lease_ms + unconfirmed_ms) * (1 + DRIFT_MAX)
    assert lease_ms < times.session_ms_min * (1 - DRIFT_MAX)
    assert times.session_ms_min <= times.detector().timeout_ms <= times.session_ms_max
    assert times.heartbeat_ms + times.pause_ms < times.lease_ms or times.lease_ms > 2_000


def test_a_patient_cluster_tolerates_longer_pauses() -> None:
    assert SessionTimes.of(ClusterSection(session_timeout_ms=60_000)).session_ms_min > 6_000


def test_voters_stand_before_the_session_of_the_controller_ends() -> None:
    cluster = ClusterSection()
    raft = RaftSettings(
        election_timeout_ms=cluster.election_timeout_ms,
        pause_ms=cluster.pause_ms,
        fetch_wait_max_ms=cluster.heartbeat_interval_ms,
    )
    assert raft.timeout_ms_min < SessionTimes.of(cluster).session_ms_min


def test_earlier_builds_are_told_by_what_they_know() -> None:
    assert holds_short_leases(LevelRange(1, 3))
    assert not holds_short_leases(LevelRange(1, 2))
