"""What the process is allowed, and what it allows itself."""

import contextlib
import gc
import resource
from typing import Final

OPEN_FILES_MAX: Final = 1 << 20
"""No more is asked for, where there is no limit at all."""
YOUNG_MAX: Final = 100_000
"""More objects than one read of the NATS socket makes, whatever number of partitions is in it."""


def allow_open_files() -> None:
    """As many as may be: a log that is in use keeps its last file open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES_MAX if hard == resource.RLIM_INFINITY else hard
    if soft not in (resource.RLIM_INFINITY, wanted):
        # macOS has another limit, and no name for it.
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


def collect_seldom() -> None:
    """Reference counts free what the hot path makes, so looking for cycles among it is in vain.

    At the default of 700 objects a read of 400 partitions makes Python look twice, and what
    happens to be in flight then ages, until all partitions of the node are looked at: for a second,
    where there are 10,000.
    """
    gc.set_threshold(YOUNG_MAX, *gc.get_threshold()[1:])


def leave_garbage() -> None:
    """The process ends: its memory goes with it. To look through all of it for cycles first, and to
    take them apart, took 7 s of a stop with 20,000 partitions.
    """
    gc.disable()
    gc.freeze()
