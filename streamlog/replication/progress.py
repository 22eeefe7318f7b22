"""One follower, as its leader knows it."""

from typing import Final

from streamlog.model import NO_EPOCH

LONG_AGO_MS: Final = -(1 << 62)


class FollowerProgress:
    """How far a follower is, and when it last had all that there was.

    A follower is caught up as of the moment at which the leader's log ended where the follower's
    ends now: a busy one is so although it never sees the very end (KIP-16).
    """

    __slots__ = (
        "_leader_end", "_left_epoch", "_told_ms", "caught_up_ms", "end_offset", "is_back", "log_start",
        "node_epoch",
    )  # fmt: skip

    def __init__(self, caught_up_ms: int = LONG_AGO_MS) -> None:
        self.end_offset = -1
        """All below is on it; -1 until it has fetched."""
        self.log_start = -1
        """Its log start offset as it last reported it, durable there; -1 until it has fetched."""
        self.node_epoch = -1
        """Of the process that fetched last."""
        self.caught_up_ms = caught_up_ms
        self._leader_end = -1  # of the leader's log when it fetched last, which was then:
        self._told_ms = LONG_AGO_MS
        self.is_back = False
        """It has told less than before, and no more since."""
        self._left_epoch = NO_EPOCH  # the partition epoch by which it left the ISR

    def fetched(
        self,
        offset: int,
        *,
        node_epoch: int,
        leader_end: int,
        now_ms: int,
        log_start: int = 0,
        partition_epoch: int = NO_EPOCH,
    ) -> None:
        """It asks for what comes from ``offset`` on, so that it has all below; its own log begins
        at ``log_start``. ``partition_epoch``: as it knows it; NO_EPOCH: a node of an earlier version
        does not tell.
        """
        if self.is_outdated(partition_epoch):
            return
        self.log_start = log_start
        if node_epoch != self.node_epoch:  # another process; what the one before had is not said
            self.node_epoch = node_epoch
            self._leader_end = leader_end
        if offset >= leader_end:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif offset >= self._leader_end:
            self.caught_up_ms = max(self.caught_up_ms, self._told_ms)
        self.is_back &= offset == self.end_offset
        self.end_offset = offset
        self._leader_end = leader_end
        self._told_ms = now_ms

    def went_back(self, offset: int) -> None:
        """It has less than it had told: it cannot read the rest any more."""
        self.end_offset = offset
        self.is_back = True

    def is_outdated(self, partition_epoch: int) -> bool:
        """The request was on its way when the follower left the ISR, and tells of the log as it was."""
        return partition_epoch != NO_EPOCH and partition_epoch < self._left_epoch

    def left(self, partition_epoch: int) -> None:
        """By that epoch it is out of the ISR: what it had does not count any more until it has fetched
        again, knowing of it.

        The controller takes a replica out whose log is damaged, and the replica cuts the damage off
        when it hears that. It is level again only when it has fetched what it had before.
        """
        self.end_offset = self.log_start = self._leader_end = -1
        self.is_back = False
        self._left_epoch = partition_epoch

    def had_all(self, then_ms: int) -> None:
        """It had asked again then, and the leader's log ended where it had when it fetched last."""
        self.caught_up_ms = max(self.caught_up_ms, then_ms)
        self._told_ms = max(self._told_ms, then_ms)

    def is_heard(self, now_ms: int, within_ms: int) -> bool:
        """It has fetched within that time."""
        return now_ms - self._told_ms <= within_ms

    def lag_ms(self, leader_end: int, now_ms: int) -> int:
        """For how long it has not been caught up; 0 where nothing is missing."""
        return 0 if self.end_offset == leader_end else max(0, now_ms - self.caught_up_ms)
