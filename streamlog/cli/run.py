"""What becomes of a command's errors: one that we know is a line, never a traceback."""

import sys
from collections.abc import Callable

from streamlog.errors import ConfigError, StreamlogError


def run(app: Callable[[], object]) -> None:
    """Run the command in ``sys.argv``."""
    try:
        app()
    except BaseExceptionGroup as group:
        known = group.subgroup(StreamlogError)
        if known is None:
            raise
        _fail(_first(known))
    except StreamlogError as error:
        _fail(error)
    except KeyboardInterrupt:
        sys.exit(130)


def _fail(error: BaseException) -> None:
    text = " ".join(str(error).split()) or type(error).__name__
    print(f"streamlog: {text}", file=sys.stderr)
    sys.exit(2 if isinstance(error, ConfigError) else 1)


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
