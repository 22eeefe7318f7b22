from pathlib import Path

import pytest

from tests.scenarios.interpreters import FOLDER, SCENARIOS, play
from tests.scenarios.script import blocks_of, difference, played


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.relative_to(FOLDER).as_posix())
def test_the_trace_is_the_expected_one(path: Path) -> None:
    """`python -m tests.scenarios --rewrite` writes the traces again, if they are to be others."""
    expected, trace = path.read_text(), play(path)
    assert trace == expected, f"another trace:\n{difference(path.name, expected, trace)}"


TEXT = """# a comment
do 1

do 2
----
did 1
old

do 3
----
"""


def test_traces_follow_their_commands() -> None:
    again = played(TEXT, lambda command: [command.replace("do", "did")])
    assert again == "# a comment\ndo 1\n\ndo 2\n----\ndid 1\ndid 2\n\ndo 3\n----\ndid 3\n"
    assert played(again, lambda command: [command.replace("do", "did")]) == again
    shown = difference("some.txt", TEXT, again)
    assert "-old" in shown
    assert "+did 2" in shown


def test_commands_without_a_trace_are_refused() -> None:
    with pytest.raises(ValueError, match="have no ----"):
        list(blocks_of("do 1\n"))
