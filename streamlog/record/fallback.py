"""Says once that compiled parts are missing."""

import functools
import warnings


@functools.cache
def warn() -> None:
    """One warning for the whole process, whichever compiled part is missed first."""
    warnings.warn(
        "streamlog's compiled parts are missing: plain Python takes over, many times slower; "
        "install a C compiler and streamlog again",
        RuntimeWarning,
        stacklevel=3,
    )
