"""Which of a peer's tests are run, against what, and what is expected of them."""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, NamedTuple

PASSED: Final = "passed"
FAILED: Final = "failed"
SKIPPED: Final = "skipped"

Place = Literal["cluster", "lone", "left out"]
"""Three nodes, one node, or not run at all."""


class Entry(NamedTuple):
    """Tests named by the beginnings of their ids, and why they are listed."""

    reason: str
    tests: tuple[str, ...]


def begins(test: str, beginning: str) -> bool:
    """``a.py`` begins ``a.py::b``, and ``a.py::b`` does ``a.py::b[c]``, but not ``a.py::bc``."""
    return test == beginning or test.startswith((f"{beginning}::", f"{beginning}["))


@dataclass(frozen=True)
class Expectations:
    """One peer's list."""

    files: tuple[str, ...]
    """What is collected of it."""
    left_out: tuple[Entry, ...]
    """Needs what streamlog does not offer, or no server at all."""
    lone: tuple[Entry, ...]
    """Takes for granted that there is one broker alone."""
    failing: tuple[Entry, ...]
    """Is run, and fails for a known reason."""

    @classmethod
    def read(cls, path: Path) -> "Expectations":
        """Raises KeyError, TypeError where the file is not such a list."""
        content = tomllib.loads(path.read_text())
        lists = {
            name: tuple(
                Entry(entry["reason"], tuple(entry["tests"])) for entry in content.get(name, [])
            )
            for name in ("left_out", "lone", "failing")
        }
        return cls(tuple(content["files"]), **lists)

    def place(self, test: str) -> Place:
        if any(begins(test, name) for name in _names(self.left_out)):
            return "left out"
        return "lone" if any(begins(test, name) for name in _names(self.lone)) else "cluster"

    def is_failing(self, test: str) -> bool:
        return any(begins(test, name) for name in _names(self.failing))


@dataclass
class Verdict:
    """What came out, held against what was expected."""

    passed: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    failed_as_expected: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    """Nobody expected it."""
    surprises: list[str] = field(default_factory=list)
    """Passed, though a failure was expected."""
    unknown: list[str] = field(default_factory=list)
    """Named in the list, and no test's beginning."""


def judge(expected: Expectations, collected: Iterable[str], outcomes: Mapping[str, str]) -> Verdict:
    """``collected``: all tests that there are; ``outcomes``: of those that were run."""
    verdict = Verdict()
    for test, outcome in outcomes.items():
        match outcome, expected.is_failing(test):
            case "skipped", _:
                verdict.skipped.append(test)
            case "passed", False:
                verdict.passed.append(test)
            case "passed", True:
                verdict.surprises.append(test)
            case _, True:
                verdict.failed_as_expected.append(test)
            case _:
                verdict.failed.append(test)
    tests = list(collected)
    listed = (*expected.left_out, *expected.lone, *expected.failing)
    verdict.unknown = [
        name for name in _names(listed) if not any(begins(test, name) for test in tests)
    ]
    return verdict


def _names(entries: Iterable[Entry]) -> Iterable[str]:
    return (name for entry in entries for name in entry.tests)
