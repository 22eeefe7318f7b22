"""What is made of the outcomes of a peer's tests."""

from pathlib import Path

import pytest

from tests.peers.expectations import Expectations, begins, judge
from tests.peers.sources import PEERS

LIST = """
files = ["t.py"]
[[left_out]]
reason = "transactions"
tests = ["t.py::test_transaction"]
[[lone]]
reason = "counts brokers"
tests = ["t.py::test_count"]
[[failing]]
reason = "not yet"
tests = ["t.py::test_late"]
"""


@pytest.fixture
def expected(tmp_path: Path) -> Expectations:
    path = tmp_path / "list.toml"
    path.write_text(LIST)
    return Expectations.read(path)


def test_a_beginning_ends_where_a_name_does() -> None:
    assert begins("a.py::b", "a.py")
    assert begins("a.py::b", "a.py::b")
    assert begins("a.py::b[c]", "a.py::b")
    assert not begins("a.py::bc", "a.py::b")


def test_where_tests_are_run(expected: Expectations) -> None:
    assert expected.place("t.py::test_transaction[1]") == "left out"
    assert expected.place("t.py::test_count") == "lone"
    assert expected.place("t.py::test_late") == "cluster"
    assert expected.place("t.py::test_other") == "cluster"


def test_a_failure_that_nobody_expects_is_one(expected: Expectations) -> None:
    outcomes = {"t.py::a": "passed", "t.py::b": "failed", "t.py::c": "skipped"}
    verdict = judge(expected, outcomes, outcomes)
    assert (verdict.passed, verdict.failed, verdict.skipped) == (
        ["t.py::a"],
        ["t.py::b"],
        ["t.py::c"],
    )


def test_an_expected_failure_is_none_and_its_end_is_told(expected: Expectations) -> None:
    tests = ["t.py::test_late[1]", "t.py::test_late[2]"]
    verdict = judge(expected, tests, dict(zip(tests, ("failed", "passed"), strict=True)))
    assert verdict.failed == []
    assert verdict.failed_as_expected == tests[:1]
    assert verdict.surprises == tests[1:]


def test_names_of_no_test_are_told(expected: Expectations) -> None:
    verdict = judge(expected, ["t.py::test_count", "t.py::test_late[x]"], {})
    assert verdict.unknown == ["t.py::test_transaction"]


@pytest.mark.parametrize("package", PEERS)
def test_each_peer_has_a_list_with_reasons(package: str) -> None:
    expected = Expectations.read(Path(__file__).parents[2] / "peers" / f"{package}.toml")
    entries = (*expected.left_out, *expected.lone, *expected.failing)
    assert expected.files
    assert all(entry.reason and entry.tests for entry in entries)
    names = [name for entry in entries for name in entry.tests]
    assert len(names) == len(set(names))
