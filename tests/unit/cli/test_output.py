"""What is printed: tables that are whole, JSON and YAML that say the same."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
import typer
import yaml

from streamlog.cli import output
from streamlog.cli.output import Size, print_json, print_table, width_of
from streamlog.cli.program import app
from tests.in_process import streamlog

LONG = "orders.very.long.subject." * 12


def commands(group: Any, *words: str) -> dict[tuple[str, ...], Any]:
    found: dict[tuple[str, ...], Any] = {}
    for name, command in group.commands.items():
        inner = hasattr(command, "commands")
        found |= commands(command, *words, name) if inner else {(*words, name): command}
    return found


COMMANDS = commands(typer.main.get_command(app))


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_what_prints_json_prints_yaml(words: tuple[str, ...]) -> None:
    names = {option for it in COMMANDS[words].params for option in it.opts}
    assert ("--json" in names) == ("--yaml" in names)
    if words[-1] in {"ls", "info", "show", "status", "check", "quorum", "nodes", "top"}:
        assert "--json" in names


def test_nothing_is_cut_off_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("STREAM", "SUBJECT", "N"), [("a", LONG, 1), ("b" * 50, "x", 12345)])
    first, second, third = capsys.readouterr().out.splitlines()
    assert LONG in second and third.startswith("b" * 50) and third.endswith("12 345")
    assert len({first.index("SUBJECT"), second.index("orders"), third.index("x")}) == 1


def test_a_terminal_gets_lines_that_fit(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setattr(output, "columns_of_terminal", lambda: 60)
    print_table(("STREAM", "SUBJECT", "N"), [("orders", LONG, 12345)])
    lines = capsys.readouterr().out.splitlines()
    assert max(len(it) for it in lines[1:]) <= 60
    assert "".join(it[8:52].strip() for it in lines[1:]) == LONG, "folded, not cut off"


@pytest.mark.parametrize(("text", "columns"), [("abc", 3), ("\u6771\u4eac", 4), ("e\u0301", 1)])
def test_wide_characters_take_two_columns(text: str, columns: int) -> None:
    assert width_of(text) == columns


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (3 << 40, "3.0 TiB")]
)
def test_sizes_are_shown_in_units(value: int, text: str) -> None:
    assert str(Size(value)) == text


def test_yaml_says_what_json_does(capsys: pytest.CaptureFixture[str]) -> None:
    value = {
        "b": [1, None, "x: y\u202e"],
        "a": {"on": "yes"},
        "t": datetime(2026, 1, 1, tzinfo=UTC),
    }
    print_json(value)
    as_json = json.loads(capsys.readouterr().out)
    before = output.as_yaml.set(True)
    print_json(value)
    print_json(value)
    output.as_yaml.reset(before)
    text = capsys.readouterr().out
    assert list(yaml.safe_load_all(text)) == [as_json, as_json] and "\u202e" not in text


def test_the_option_is_for_every_command(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    streamlog(["context", "add", "one", "--user", "ann"])
    printed = streamlog(["context", "ls", "--yaml"]).stdout
    assert yaml.safe_load(printed) == [{"name": "one", "current": False, "user": "ann"}]
    assert json.loads(streamlog(["context", "ls", "--json"]).stdout) == yaml.safe_load(printed)
