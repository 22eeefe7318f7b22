"""Options that commands have besides the parameters of their functions: a function's parameters, once for all.

A command is a function, and the options that many have stand in one function each, which is asked for
what was given before the command runs.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import cache
from typing import Any, NamedTuple

import typer

Around = Callable[[Mapping[str, Any], dict[str, Any]], AbstractContextManager[None]]
"""Entered with what was given for the added options, and with the command's own arguments."""


class AddedOptions(NamedTuple):
    """The options that a function's parameters are, and the function, called with their values."""

    params: list[Any]
    callback: Callable[..., Any]


@cache
def added_options(function: Callable[..., Any]) -> AddedOptions:
    app = typer.Typer(add_completion=False)
    app.command()(function)
    command = typer.main.get_command(app)
    assert command.callback is not None
    return AddedOptions(command.params, command.callback)


def add_options(command: Any, function: Callable[..., Any], around: Around | None = None) -> None:
    """Gives a command the options; it runs within ``around``."""
    params, own = added_options(function).params, command.callback

    def run(**arguments: Any) -> Any:
        given = {it.name: arguments.pop(it.name) for it in params}
        if around is None:
            return own(**arguments)
        with around(given, arguments):
            return own(**arguments)

    command.params = [*command.params, *params]
    command.callback = run
