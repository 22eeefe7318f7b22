"""Contexts: how to reach a cluster, by a name, each in a file of the user.

``$XDG_CONFIG_HOME/streamlog/contexts/NAME.toml`` has some of ``KEYS``; ``current-context`` beside the folder
has the name of the one that is used where no other is asked for. A password is in a file of its own, which
the context names.
"""

import json
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from streamlog.errors import ConfigError

VARIABLE: Final = "STREAMLOG_CONTEXT"

KEYS: Final[dict[str, str]] = {
    "description": "description",
    "bootstrap_server": "servers",
    "tls": "tls",
    "tls_ca": "tls_ca",
    "tls_cert": "tls_cert",
    "tls_key": "tls_key",
    "tls_key_password_file": "tls_key_password_file",
    "user": "user",
    "password_file": "password_file",
    "token_file": "token_file",
    "mechanism": "mechanism",
    "nats_server": "nats",
    "creds": "creds",
}
"""What a file may have, and which parameter of commands it is the default of."""
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}", re.ASCII)

Context = Mapping[str, Any]


def folder() -> Path:
    """Of the files, whether it is there or not."""
    config = os.environ.get("XDG_CONFIG_HOME") or str(Path("~/.config").expanduser())
    return Path(config) / "streamlog" / "contexts"


def path_of(name: str) -> Path:
    """Raises ConfigError for what is no name."""
    if not _NAME.fullmatch(name):
        problem = f"{name!r} is no name of a context"
        raise ConfigError("--context", problem, "use letters, digits, dots, dashes")
    return folder() / f"{name}.toml"


def names() -> list[str]:
    return sorted(it.stem for it in folder().glob("*.toml"))


def current() -> str | None:
    """The name of the one in use, unless another is asked for."""
    try:
        return _current().read_text().strip() or None
    except FileNotFoundError:
        return None


def use(name: str | None) -> None:
    """From now on; None: none. Raises ConfigError where it is not there."""
    if name is None:
        _current().unlink(missing_ok=True)
    else:
        read(name)
        _write(_current(), name + "\n")


def read(name: str) -> Context:
    """Raises ConfigError: there is none of this name, or it cannot be read."""
    path = path_of(name)
    try:
        found = tomllib.loads(path.read_text())
    except FileNotFoundError:
        others = ", ".join(names()) or "none yet"
        remedy = f"`streamlog context add {name}` makes it; there are: {others}"
        raise ConfigError("--context", f"there is no context {name!r}", remedy) from None
    except (OSError, ValueError) as error:
        raise ConfigError(str(path), str(error), "correct the file") from None
    for key, value in found.items():
        if key not in KEYS:
            raise ConfigError(f"{path}: {key}", "there is no such key", f"use {', '.join(KEYS)}")
        if not isinstance(value, bool if key == "tls" else str):
            raise ConfigError(f"{path}: {key}", f"{value!r} is not of its type", "correct the file")
    return found


def write(name: str, context: Context) -> Path:
    """For this user alone. Raises ConfigError."""
    path = path_of(name)
    lines = (f"{key} = {json.dumps(context[key])}\n" for key in KEYS if key in context)
    _write(path, "".join(lines))
    return path


def remove(name: str) -> None:
    """Raises ConfigError where it is not there."""
    read(name)
    path_of(name).unlink()
    if current() == name:
        use(None)


def defaults_of(name: str | None) -> dict[str, Any]:
    """Of the parameters of commands; ``name``: the one that is asked for, else the current one counts.

    Raises ConfigError.
    """
    asked = name or current()
    if asked is None:
        return {}
    context = read(asked)
    return {KEYS[key]: value for key, value in context.items() if key != "description"}


def _current() -> Path:
    return folder().parent / "current-context"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    temporary.replace(path)
