"""Completion by the Tab key, with a real bash."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from streamlog.cli.program import COMMANDS

BIN = Path(sys.executable).parent
COMPLETE = """
. "$HOME/.bashrc"
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
$(complete -p streamlog | sed 's/.*-F \\([^ ]*\\) .*/\\1/') streamlog
printf '%s\\n' "${COMPREPLY[@]}"
"""


def bash(home: Path, script: str, *arguments: str) -> list[str]:
    environment = os.environ | {"HOME": str(home), "PATH": f"{BIN}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "--norc", "-c", script, "bash", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.split()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a user who has installed completion."""
    folder = tmp_path_factory.mktemp("home")
    bash(folder, "streamlog --install-completion; exit $?")
    return folder


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        (("",), list(COMMANDS)),
        (("st",), ["stream"]),
        (("--ver",), ["--version"]),
        (("bench", ""), ["publish", "latency", "consume", "failover"]),
        (("consume", "--par"), ["--partition"]),
        (("stream", "add", "s", "--segment-a"), ["--segment-age"]),
        (("stream", "add", "s", "--acks", ""), ["all", "leader", "none"]),
    ],
    ids=str,
)
def test_words_are_completed(home: Path, words: tuple[str, ...], completed: list[str]) -> None:
    assert bash(home, COMPLETE, "streamlog", *words) == completed


def test_the_script_can_be_shown(tmp_path: Path) -> None:
    shown = bash(tmp_path, "streamlog --show-completion; exit $?")
    assert "_STREAMLOG_COMPLETE=complete_bash" in shown
