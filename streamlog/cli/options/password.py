"""Passwords from a terminal or a file: never out of arguments, which others on the machine see."""

import getpass
import sys
from pathlib import Path

from streamlog.errors import ConfigError


def asked_for(prompt: str, *, confirm: bool, option: str) -> str:
    """Raises ConfigError where there is no terminal, or the two are not the same."""
    if not sys.stdin.isatty():
        raise ConfigError(
            "password", "there is no terminal to ask for it on", f"name a file by {option}"
        )
    password = getpass.getpass(f"{prompt}: ")
    if not password:
        raise ConfigError("password", "is empty", "type one")
    if confirm and getpass.getpass("Once more: ") != password:
        raise ConfigError("password", "the two differ", "try again")
    return password


def new_password(user: str, path: Path | None) -> str:
    """Out of the first line of ``path``, ``-`` being the standard input. Raises ConfigError."""
    if path is None:
        return asked_for(f"New password of {user}", confirm=True, option="--new-password-file")
    if str(path) != "-":
        from streamlog.client.security import lines_of

        return lines_of(path, "--new-password-file")[0]
    password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise ConfigError("--new-password-file", "the standard input is empty", "write it there")
    return password
