"""The cluster that commands ask where none is named: the one that ``streamlog dev`` runs.

It is written when all is ready, into the user's state folder (XDG Base Directory Specification),
and removed when it stops; one that was killed leaves it, and its process is looked for.
"""

import contextlib
import json
import os
from pathlib import Path
from typing import Final

APP: Final = "streamlog"
NAME: Final = "dev.json"


def path() -> Path:
    """Of the file, whether it is there or not."""
    state = os.environ.get("XDG_STATE_HOME") or str(Path("~/.local/state").expanduser())
    return Path(state) / APP / NAME


def write(servers: str) -> None:
    """``servers``: the socket API of all of its nodes: ``host:port``, by commas.

    Where it cannot be written commands have to name them.
    """
    with contextlib.suppress(OSError):
        place = path()
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary = place.with_suffix(f".{os.getpid()}.tmp")
        temporary.write_text(json.dumps({"pid": os.getpid(), "servers": servers}) + "\n")
        temporary.replace(place)


def remove() -> None:
    """If it is still this process's."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        if json.loads(path().read_text()).get("pid") == os.getpid():
            path().unlink()


def current() -> str | None:
    """Its servers; None where no development cluster of this user runs."""
    try:
        found = json.loads(path().read_text())
        os.kill(int(found["pid"]), 0)
        return str(found["servers"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
