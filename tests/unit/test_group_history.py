"""The checker of consumer groups finds what it is to find."""

from pathlib import Path
from typing import Any

import pytest

from tests.group_history import GroupHistory, Violation

GOOD: dict[str, Any] = {
    "a": "A 1 0\nP 10 0 0 5\nC 20 0 5\nP 30 0 5 9\nR 40 0\n",
    "b": "A 50 0\nP 60 0 5 12\nC 70 0 12\n",
}


def history(tmp_path: Path, killed: dict[str, int] | None = None, **journals: str) -> GroupHistory:
    paths = []
    for name, text in journals.items():
        paths.append(tmp_path / f"{name}.journal")
        paths[-1].write_text(text)
    return GroupHistory.read(paths, killed or {})


def test_a_good_one(tmp_path: Path) -> None:
    found = history(tmp_path, **GOOD)
    found.check({0: 12})
    assert found.repeated() == 4
    assert found.committed() == {0: 12}


def test_what_nobody_processed(tmp_path: Path) -> None:
    with pytest.raises(Violation, match="0: processed up to 12, not to 13"):
        history(tmp_path, **GOOD).check({0: 13})
    with pytest.raises(Violation, match="1: processed up to 0, not to 1"):
        history(tmp_path, **GOOD).check({0: 12, 1: 1})
    with pytest.raises(Violation, match="0: nobody processed 5 to 6"):
        history(tmp_path, a="P 1 0 0 5\nP 2 0 6 9\n").check({0: 9})


def test_what_comes_again_after_its_commit(tmp_path: Path) -> None:
    again = GOOD["b"].replace("P 60 0 5 12", "P 60 0 4 12")
    with pytest.raises(Violation, match="came again after"):
        history(tmp_path, a=GOOD["a"], b=again).check({0: 12})


def test_what_was_asked_for_before_the_commit_may_come(tmp_path: Path) -> None:
    history(tmp_path, a="P 10 0 0 5\nC 20 0 5\n", b="P 19 0 2 5\n").check({0: 5})


def test_a_torn_line_and_errors_are_passed_over(tmp_path: Path) -> None:
    found = history(tmp_path, a="X 1 some error\nP 2 0 0 7\nP 3 0 7 1")
    found.check({0: 7})


def test_gaps(tmp_path: Path) -> None:
    second = 1_000_000_000
    found = history(
        tmp_path,
        {"a": 10 * second},
        a=f"A {1 * second} 0\n",
        b=f"A {2 * second} 1\nR {11 * second} 1\nA {13 * second} 0 1\n",
    )
    assert found.is_whole(2) and not found.is_whole(3)
    assert found.gaps_s() == [3.0, 2.0]
    assert "2 times a partition changed hands: after a median of 2.50 s" in found.describe()
