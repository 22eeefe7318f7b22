"""How patient a member of the quorum is. Pure."""

from dataclasses import dataclass

from streamlog.errors import BrokenInvariant


@dataclass(frozen=True, slots=True)
class RaftSettings:
    """All other times of the quorum are fractions of the election timeout."""

    election_timeout_ms: int = 1_000
    """A voter that does not hear of its leader for one to two of these stands for election."""
    request_timeout_ms: int = 2_000
    """A fetch that is not answered for so long, beyond its own waiting, counts as failed."""
    fetch_wait_max_ms: int = 500
    """How long a fetch waits at the leader for news; at most half of the election timeout."""

    def __post_init__(self) -> None:
        if self.election_timeout_ms <= 0:
            raise BrokenInvariant("a timeout is not zero")
        if self.request_timeout_ms <= 0:
            raise BrokenInvariant("a timeout is not zero")
        if self.fetch_wait_max_ms < 0:
            raise BrokenInvariant("a wait is not negative")

    @property
    def wait_ms(self) -> int:
        """Short enough for an answer to arrive before the follower gives its leader up."""
        return min(self.fetch_wait_max_ms, self.election_timeout_ms // 2)

    @property
    def moment_ms(self) -> int:
        """What a failed fetch waits before the next one; how far apart elections begin where all
        know at once that their leader is gone.
        """
        return max(self.election_timeout_ms // 20, 1)

    @property
    def patience_ms(self) -> int:
        """A leader that has not been in touch with a majority for so long leads no more."""
        return self.election_timeout_ms * 3 // 2
