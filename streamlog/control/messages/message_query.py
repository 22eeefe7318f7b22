"""Which message of a partition is asked for. Pure."""

from typing import NamedTuple


class MessageQuery(NamedTuple):
    """By sequence or time; the last on ``last``; or the first on ``following`` from there on."""

    sequence: int = 0
    last: str = ""
    following: str = ""
    start_ms: int | None = None
    """Instead of a sequence: the first message of that time or later."""

    @property
    def is_empty(self) -> bool:
        return not (self.sequence or self.last or self.following) and self.start_ms is None

    @property
    def is_contradictory(self) -> bool:
        by_time = self.start_ms is not None
        return bool(
            (self.sequence and self.last)
            or (self.sequence and by_time)
            or (by_time and self.last)
            or (self.last and self.following)
        )
