"""Consumer lag. Pure."""


def consumer_lag(end_offset: int, committed_offset: int) -> int:
    """The committed records of a partition that a consumer group has yet to read. ``end_offset``: the
    high watermark, which may have been asked for before the offset was committed.
    """
    return max(0, end_offset - committed_offset)
