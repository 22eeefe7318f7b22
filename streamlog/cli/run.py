"""What becomes of a command's errors: one that we know is a line, never a traceback.

All that is wrong with a configuration is told at once, a line each.
"""

import sys
from collections.abc import Callable

from streamlog.cli.output import say
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
    for each in (error, *(error.more if isinstance(error, ConfigError) else ())):
        text = " ".join(str(each).split()) or type(each).__name__
        say(f"streamlog: {text}", to_stderr=True)
    sys.exit(2 if isinstance(error, ConfigError) else 1)


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
