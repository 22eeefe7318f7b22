"""Where a key comes from that is not on the disk with what it encrypts. Blocking.

- ``file:/etc/streamlog/keys/2026-11``         what stands there
- ``env:LOG_KEY``                              an environment variable
- ``command:vault kv get -field=key kv/log``   what a command prints; no shell looks at it

Each is 32 random bytes, in base64 or as 64 hexadecimal digits: ``streamlog encryption keygen``.
No error tells any of it.
"""

import base64
import binascii
import os
import shlex
import subprocess
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from streamlog.errors import ConfigError
from streamlog.log.encryption.key_ring import KEY_BYTES, KeyRing
from streamlog.model import KEY_NAME

COMMAND_TIMEOUT_S: Final = 30
_TEXT_BYTES_MAX: Final = 1024
FORMS: Final = "file:PATH, env:VARIABLE or command:PROGRAM ARGUMENTS"


def key_ring(sources: Mapping[str, str], active: str | None) -> KeyRing:
    """Raises ConfigError for the first one that cannot be had."""
    return KeyRing({name: _key(name, source) for name, source in sources.items()}, active)


def parsed_sources(texts: Iterable[str], where: str = "encryption.keys") -> dict[str, str]:
    """Of ``NAME=SOURCE`` each; ``where`` they were given.

    Raises ConfigError, which repeats nothing that may be a key that stands there itself.
    """
    found: dict[str, str] = {}
    for number, text in enumerate(texts, 1):
        name, _, source = text.strip().partition("=")
        kind, _, rest = source.partition(":")
        if kind not in _READERS or not rest.strip():
            problem = f"number {number} does not say where a key is"
            raise ConfigError(where, problem, f"write NAME={FORMS}")
        check_name(name, where)
        if name in found:
            raise ConfigError(where, f"{name} is given twice", "remove one of them")
        found[name] = source
    return found


def check_name(name: str, where: str) -> None:
    """Raises ConfigError."""
    if not KEY_NAME.fullmatch(name):
        raise ConfigError(where, f"{name[:80]!r} names no key", "take letters, digits and . _ -")


def _key(name: str, source: str) -> bytes:
    kind, _, rest = source.partition(":")
    read = _READERS.get(kind)
    where = f"encryption.keys.{name}"
    if read is None or not rest.strip():
        raise ConfigError(where, "does not say where the key is", f"take {FORMS}")
    text = read(where, rest)
    key = _decoded(text)
    if key is None:
        raise ConfigError(
            where,
            f"what its {kind} has is no key",
            "take 32 random bytes in base64, as `streamlog encryption keygen` makes them",
        )
    return key


def _decoded(text: bytes) -> bytes | None:
    ways: tuple[Callable[[bytes], bytes], ...] = (binascii.unhexlify, _of_base64)
    for decode in ways:
        try:
            key = decode(text.strip())
        except ValueError:
            continue
        if len(key) == KEY_BYTES:
            return key
    return None


def _of_base64(text: bytes) -> bytes:
    return base64.b64decode(text, validate=True)


def _of_file(where: str, path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            text = file.read(_TEXT_BYTES_MAX + 1)
    except OSError as error:
        problem = f"{path} cannot be read: {error.strerror or error}"
        raise ConfigError(where, problem, "write the key there, for this user to read") from None
    if len(text) > _TEXT_BYTES_MAX:
        problem = f"{path} has more than {_TEXT_BYTES_MAX} bytes"
        raise ConfigError(where, problem, "write the key there, and nothing else")
    return text


def _of_environment(where: str, variable: str) -> bytes:
    try:
        return os.environb[variable.encode()]
    except KeyError:
        raise ConfigError(
            where, f"the environment variable {variable} is not set", "set it to the key"
        ) from None


def _of_command(where: str, line: str) -> bytes:
    program = line.split(maxsplit=1)[0]
    remedy = f"try it by hand: it has to print the key, within {COMMAND_TIMEOUT_S} s"
    try:
        done = subprocess.run(
            shlex.split(line),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )
    except (OSError, ValueError) as error:
        problem = f"{program} cannot be run: {getattr(error, 'strerror', None) or error}"
        raise ConfigError(where, problem, remedy) from None
    except subprocess.TimeoutExpired:
        raise ConfigError(where, f"{program} has not ended", remedy) from None
    if done.returncode:
        raise ConfigError(where, f"{program} has failed with {done.returncode}", remedy)
    return done.stdout


_READERS: Final[dict[str, Callable[[str, str], bytes]]] = {
    "file": _of_file,
    "env": _of_environment,
    "command": _of_command,
}
