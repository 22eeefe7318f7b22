"""What the command line imports before it does anything: modules by name, since no clock is read here."""

import subprocess
import sys

import pytest
from typer.main import get_command

from streamlog.cli.program import COMMANDS, app

PROGRAM = """
import atexit, sys
atexit.register(lambda: print("MODULES", *sys.modules))
from streamlog.cli import main
sys.argv = ["streamlog", *sys.argv[1:]]
main()
"""
OWN = {
    "streamlog",
    "streamlog.cli",
    "streamlog.cli.output",
    "streamlog.cli.program",
    "streamlog.errors",
    "streamlog.app",
    "streamlog.app.escapes",
}
HEAVY = {
    "aiohttp",
    "asyncio",
    "cramjam",
    "cryptography",
    "kio",
    "nats",
    "pydantic",
    "uvloop",
}


def imported(*arguments: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, check=True
    )
    (line,) = (it for it in done.stdout.splitlines() if it.startswith("MODULES "))
    return set(line.split()[1:])


@pytest.mark.parametrize("arguments", [("--version",), ("--help",)], ids=" ".join)
def test_the_program_itself_imports_next_to_nothing(arguments: tuple[str, ...]) -> None:
    found = imported(*arguments)
    assert {it for it in found if it.partition(".")[0] == "streamlog"} == OWN
    assert found & HEAVY == set()


def test_a_probe_imports_no_protocol() -> None:
    """Containers run it every few seconds."""
    assert imported("health", "--help") & {"cramjam", "kio", "nats"} == set()


def test_the_first_lines_of_help_are_those_of_the_commands() -> None:
    commands = get_command(app).commands  # type: ignore[attr-defined]
    for name, place in COMMANDS.items():
        command = commands[name]
        first = (command.help or "").split("\n\n")[0]
        assert (command.name, " ".join(first.split())) == (name, place.help)
        assert not command.hidden


def test_the_help_of_the_program_cuts_no_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "streamlog", "--help"], capture_output=True, text=True, check=True
    )
    words = " ".join(done.stdout.split())
    for name, place in COMMANDS.items():
        assert f"{name} {place.help}" in words
