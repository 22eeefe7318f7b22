"""Options by which commands are told the keys to encrypted streams."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from streamlog.log.encryption.key_ring import KeyRing

Keys = Annotated[
    list[str] | None,
    typer.Option(
        "--key",
        metavar="NAME=SOURCE",
        help="A key to encrypted streams: file:PATH, env:VARIABLE or command:PROGRAM ARGUMENTS."
        " May be repeated.",
    ),
]
KeysOf = Annotated[
    Path | None,
    typer.Option(
        "--config", exists=True, dir_okay=False, help="A node's configuration: its keys are known."
    ),
]


def told_keys(
    keys: list[str] | None, config: Path | None, *, active_of_config: bool = False
) -> "KeyRing":
    """All of them. What is new is encrypted by the first of ``keys``; without any, or if that is
    asked for, by the active one of ``config``, if there is one.

    Raises ConfigError for what cannot be had.
    """
    from streamlog.log.encryption.key_source import key_ring, parsed_sources

    sources = parsed_sources(keys or (), "--key")
    active = next(iter(sources), None)
    if config is not None:
        from streamlog.config import load_settings

        encryption = load_settings(config).encryption
        sources = {**encryption.keys, **sources}
        if encryption.active_key is not None and (active is None or active_of_config):
            active = encryption.active_key
    return key_ring(sources, active)
