"""How a command gets to NATS: by its options, and by the variables that the nats CLI has as well.

A password or a token has no option: arguments of a process are visible to every user.
"""

import os
import re
from pathlib import Path
from typing import Final

from streamlog.config import NatsSection
from streamlog.errors import ConfigError

VARIABLES: Final = {
    "user": "NATS_USER",
    "password": "NATS_PASSWORD",
    "token": "NATS_TOKEN",
    "nkey_seed": "NATS_NKEY",
    "credentials": "NATS_CREDS",
    "tls_ca": "NATS_CA",
    "tls_cert": "NATS_CERT",
    "tls_key": "NATS_KEY",
    "tls_server_name": "NATS_TLS_SERVER_NAME",
    "tls_first": "NATS_TLS_FIRST",
}
"""By the key of ``[nats]`` that means the same."""

_NAMES: Final = {f"nats.{key}": name for key, name in VARIABLES.items()} | {
    "nats.servers": "--nats-server",
    "nats.credentials": "--creds",
}
_BETWEEN: Final = re.compile(r",(?=\w+://)")


def nats_settings(url: str, credentials: str | None) -> NatsSection:
    """Of ``--nats-server``, ``--creds`` and the environment. Raises ConfigError."""
    from streamlog.ingest.nats.options import NatsOptions

    given = {key: os.environ[name] for key, name in VARIABLES.items() if os.environ.get(name)}
    given.pop("credentials", None)  # it is an option, which has looked for it
    if "tls_first" in given and given["tls_first"].lower() not in ("1", "true", "0", "false"):
        raise ConfigError(VARIABLES["tls_first"], "is neither true nor false", "write true")
    section = NatsSection.model_validate(
        {**given, "credentials": Path(credentials) if credentials else None}
        | {"servers": _BETWEEN.split(url)}
    )
    try:
        NatsOptions(section)
    except ConfigError as error:
        raise ConfigError(*map(_renamed, (error.key, error.problem, error.remedy))) from None
    return section


def _renamed(text: str) -> str:
    """With the names that a command has for the settings."""
    for key, name in _NAMES.items():
        text = re.sub(rf"{re.escape(key)}\b", name, text)
    return text
