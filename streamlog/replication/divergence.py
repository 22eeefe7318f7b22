"""Where a follower truncates: its divergence from the leader, by epoch (KIP-101, KIP-595).

With each fetch a follower names the epoch of its last batch. The leader knows where that epoch ends
in its own log; if that is before the follower's end, their histories part there at the latest.
"""

from streamlog.model import NO_EPOCH, EpochEnd


def divergence(end: EpochEnd, *, fetch_offset: int, last_epoch: int) -> EpochEnd | None:
    """What the leader tells a follower whose last batch is of ``last_epoch``; None: go on.

    ``end``: where that epoch, or the last one before it, ends in the leader's log.
    """
    if last_epoch == NO_EPOCH:
        return None
    if end.epoch < last_epoch or end.end_offset < fetch_offset:
        return end
    return None


def cut_offset(diverging: EpochEnd, own: EpochEnd, log_end: int) -> int:
    """Where the follower cuts its log; it asks again from there, since the epoch before may part
    earlier.

    ``own``: where the epoch of ``diverging``, or the last one before it, ends in its own log. What
    it has of a newer epoch cannot be the leader's; nor can what lies beyond the leader's end.
    """
    ends = [log_end, diverging.end_offset]
    if own.epoch != NO_EPOCH:
        ends.append(own.end_offset)
    return max(0, min(ends))


def shown_offset(leader_high_watermark: int, *, log_end: int, before: int) -> int:
    """The follower's high watermark: the leader's, as far as its own log goes. Never falls."""
    return max(before, min(leader_high_watermark, log_end))
