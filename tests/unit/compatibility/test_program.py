"""The contract between the driver and client programs, with programs of a few lines."""

import sys
import time
from pathlib import Path

import pytest

from compatibility.outcome import Failed, NotOffered
from compatibility.program import Program, Record


def program(tmp_path: Path, *lines: str) -> Program:
    command = [sys.executable, "-u", "-c", "\n".join(["import sys", *lines])]
    return Program(command, tmp_path / "log")


def test_lines_in_and_out(tmp_path: Path) -> None:
    echo = "for line in sys.stdin: print('{\"offset\": %s}' % line.strip())"
    with program(tmp_path, echo) as running:
        running.send("7")
        assert running.line() == {"offset": 7}
        running.send("8")
        assert running.finish() == [{"offset": 8}]
        assert running.line() is None


def test_records_and_notes(tmp_path: Path) -> None:
    record = '{"partition": 1, "offset": 2, "value": "x"}'
    with program(tmp_path, 'print(\'{"note": "so"}\')', f"print('{record}')") as running:
        assert running.records(1) == [Record(1, 2, "x")]
        assert running.notes == ["so"]


def test_lines_do_not_wait_for_what_follows_a_note(tmp_path: Path) -> None:
    with program(tmp_path, 'print(\'{"note": "so"}\')', "sys.stdin.read()") as running:
        deadline = time.monotonic() + 30
        while not running.notes:
            assert time.monotonic() < deadline
            assert running.lines() == []
        assert time.monotonic() < deadline


def test_what_went_wrong_is_one_line(tmp_path: Path) -> None:
    with (
        program(tmp_path, 'print(\'{"error": "no\\\\nway"}\')') as running,
        pytest.raises(Failed, match=r"^no way$"),
    ):
        running.line()
    with (
        program(tmp_path, 'print(\'{"not_offered": "none"}\')') as running,
        pytest.raises(NotOffered, match=r"^none$"),
    ):
        running.line()


def test_an_end_without_a_word_is_told_with_the_last_line_of_errors(tmp_path: Path) -> None:
    with (
        program(tmp_path, "sys.exit('first\\nlast')") as running,
        pytest.raises(Failed, match=r"^ended after 0 of 1 records: ended with 1 \(last\)$"),
    ):
        running.records(1)
    with program(tmp_path, "sys.exit(3)") as running, pytest.raises(Failed, match="ended with 3"):
        running.finish()


def test_silence_is_told_with_the_last_lines_before_it(tmp_path: Path) -> None:
    lines = ("print('it waits', file=sys.stderr)", "print('{\"offset\": 7}')", "sys.stdin.read()")
    with program(tmp_path, *lines) as running:
        assert running.line() == {"offset": 7}
        told = r'^nothing within 0 s after {"offset": 7} \(it waits\)$'
        with pytest.raises(Failed, match=told):
            running.line(0.0)


def test_what_it_has_started_ends_with_it(tmp_path: Path) -> None:
    child = "import subprocess; subprocess.Popen(['sleep', '600']); print('{}')"
    with program(tmp_path, child, "sys.stdin.read()") as running:
        assert running.line() == {}
    assert running.line() is None  # the pipe that the child has inherited is closed
