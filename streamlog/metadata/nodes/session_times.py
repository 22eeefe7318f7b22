"""For how long a node may be silent, and for how long it may act on what it heard. Pure.

A controller fences a node after ``session_ms_min`` of silence in calm times, later where signs of life come
irregularly, and after ``session_ms_max`` in any case. Whatever it waits, a lease is for the shortest session, so that
it ends before the session does: of ``session_ms_min`` the lease takes 85 parts of 100, half of the rest is for a
controller that the quorum has not confirmed, see ``Lease``, and half for clocks that do not run equally fast.
"""

from typing import Final, NamedTuple

from streamlog.config import ClusterSection
from streamlog.metadata.image.feature_level import LevelRange
from streamlog.raft.failure_detector import FLOOR_INTERVALS, FailureDetector

LEASE_PERCENT: Final = 85
SHORT_LEASES_LEVEL: Final = 3
"""A streamlog that knows this feature level holds short leases; an earlier one leases of ``leader_lease_ms``."""


class SessionTimes(NamedTuple):
    """Equal on all nodes, as the settings that they come from have to be."""

    heartbeat_ms: int
    pause_ms: int
    """For so long a node may stand still."""
    session_ms_min: int
    """One heartbeat more than a voter waits for the controller, so that no election finds a lease that lasts."""
    session_ms_max: int
    lease_ms: int

    @classmethod
    def of(cls, settings: ClusterSection) -> "SessionTimes":
        heartbeat_ms, pause_ms = settings.heartbeat_interval_ms, settings.pause_ms
        session_ms_max = settings.session_timeout_ms
        session_ms_min = min(pause_ms + (FLOOR_INTERVALS + 1) * heartbeat_ms, session_ms_max)
        lease_ms = min(settings.leader_lease_ms, session_ms_min * LEASE_PERCENT // 100)
        return cls(heartbeat_ms, pause_ms, session_ms_min, session_ms_max, lease_ms)

    def detector(self) -> FailureDetector:
        """Of a node, by its heartbeats."""
        return FailureDetector(
            pause_ms=self.pause_ms + self.heartbeat_ms,
            interval_ms=self.heartbeat_ms,
            limit_ms=self.session_ms_max,
        )


def holds_short_leases(levels: LevelRange) -> bool:
    """A node that knows these feature levels."""
    return levels.level_max >= SHORT_LEASES_LEVEL
