"""How patient a member of the quorum is. Pure."""

from dataclasses import dataclass

from streamlog.errors import BrokenInvariant
from streamlog.raft.failure_detector import FLOOR_INTERVALS, FailureDetector


@dataclass(frozen=True, slots=True)
class RaftSettings:
    """How long a voter waits for its leader is learned, see ``FailureDetector``; from a bound below, of which
    the other times are fractions, to the election timeout.
    """

    election_timeout_ms: int = 1_000
    """A voter that does not hear of its leader for so long stands for election, soon after."""
    pause_ms: int = 300
    """For so long a member may stand still, without being taken for gone."""
    request_timeout_ms: int = 2_000
    """A fetch that is not answered for so long, beyond its own waiting, counts as failed."""
    fetch_wait_max_ms: int = 500
    """How long a voter's fetch waits at the leader for news, and so how often a voter hears of it; at most half
    of the election timeout."""
    observer_wait_ms: int = 500
    """The same of a replica that does not vote."""

    def __post_init__(self) -> None:
        if self.election_timeout_ms <= 0:
            raise BrokenInvariant("a timeout is not zero")
        if self.request_timeout_ms <= 0:
            raise BrokenInvariant("a timeout is not zero")
        if min(self.fetch_wait_max_ms, self.observer_wait_ms, self.pause_ms) < 0:
            raise BrokenInvariant("a wait is not negative")

    def detector(self) -> FailureDetector:
        """Of a leader, by its answers to fetches."""
        return FailureDetector(
            pause_ms=self.pause_ms, interval_ms=self.wait_ms, limit_ms=self.election_timeout_ms
        )

    @property
    def timeout_ms_min(self) -> int:
        """In calm times a voter waits for its leader no longer."""
        learned_ms = self.pause_ms + FLOOR_INTERVALS * self.wait_ms
        return min(learned_ms, self.election_timeout_ms)

    @property
    def spread_ms(self) -> int:
        """How far apart voters stand whose leader is silent: it takes a few round trips to be elected."""
        return max(self.timeout_ms_min // 8, 1)

    @property
    def wait_ms(self) -> int:
        """Short enough for an answer to arrive before the follower gives its leader up."""
        return min(self.fetch_wait_max_ms, self.election_timeout_ms // 2)

    @property
    def moment_ms(self) -> int:
        """What a failed fetch waits before the next one; how far apart elections begin where all
        know at once that their leader is gone.
        """
        return max(self.timeout_ms_min // 20, 1)

    @property
    def patience_ms(self) -> int:
        """A leader that has not been in touch with a majority for so long leads no more."""
        return self.election_timeout_ms * 3 // 2
