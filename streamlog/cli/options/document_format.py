"""``--yaml`` of every command that has ``--json``."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from streamlog.cli import output


def in_format(
    as_yaml: Annotated[bool, typer.Option("--yaml", help="Print YAML instead of a table.")] = False,
) -> None:
    """Its parameter is an option of every command that has ``as_json``."""


@contextmanager
def chosen_format(given: Mapping[str, Any], arguments: dict[str, Any]) -> Iterator[None]:
    """A document is one of YAML while the command runs, if that was asked for."""
    if not given["as_yaml"]:
        yield
        return
    arguments["as_json"] = True
    before = output.as_yaml.set(True)
    try:
        yield
    finally:
        output.as_yaml.reset(before)
