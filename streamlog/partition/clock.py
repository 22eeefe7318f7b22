import time


def clock_ms() -> int:
    """Of the monotonic clock: replicas' lag is counted by it."""
    return time.monotonic_ns() // 1_000_000
