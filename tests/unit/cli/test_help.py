"""What --help prints can be typed: nothing is cut at the width of a terminal."""

from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from streamlog.cli.program import app


def commands(group: Any, *words: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Typer has a click of its own, or the one that is installed."""
    if hasattr(group, "commands"):
        for name, command in group.commands.items():
            yield from commands(command, *words, name)
    else:
        yield words, group


COMMANDS = dict(commands(typer.main.get_command(app)))


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_option_is_there_in_full(words: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(app, [*words, "--help"], terminal_width=80, env={"COLUMNS": "80"})
    assert shown.exit_code == 0 and "\u2026" not in shown.output
    for parameter in COMMANDS[words].params:
        if parameter.param_type_name == "option" and not parameter.hidden:
            assert all(name in shown.output for name in parameter.opts), parameter.opts


@pytest.mark.parametrize("subject", ["orders.*", "orders.>", "*", ">", "a.*.b"])
def test_nobody_publishes_to_a_wildcard(subject: str) -> None:
    from streamlog.errors import ConfigError

    done = CliRunner().invoke(app, ["publish", subject, "x", "--nats-server", "nats://127.0.0.1:1"])
    assert isinstance(done.exception, ConfigError)
    assert f"SUBJECT: '{subject}' is for many subjects" in str(done.exception)
