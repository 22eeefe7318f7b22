"""The checker of transactions accepts what Kafka promises, and finds planted anomalies of each kind."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import pytest

from tests.history import Violation
from tests.judges.transactions import Read, Transaction, check_transactions, strongly_connected


class Story(NamedTuple):
    """Transactions, and what is in the lists in the end, by offset."""

    transactions: Sequence[Transaction]
    final: dict[str, dict[int, str]]


def read(key: str, values: dict[int, str], *, start: int = 0) -> Read:
    return Read(key, start, max(values, default=start - 1) + 1, values)


def done(
    name: str, call: int, end: int | None, *appends: str, reads: Sequence[Read] = (), **how: bool
) -> Transaction:
    """``appends``: such as ``x:1``. Committed if it has an end, but for ``aborted``."""
    pairs = [(text.partition(":")[0], text) for text in appends]
    committed = None if end is None else not how.get("aborted", False)
    return Transaction(name, call, end, committed, pairs, reads)


KEPT: Final = {
    "two transactions after each other": Story(
        [
            done("a", 0, 1, "x:1", "y:1"),
            done("b", 2, 3, "x:2", reads=[read("x", {0: "x:1"}), read("y", {0: "y:1"})]),
        ],
        {"x": {0: "x:1", 2: "x:2"}, "y": {0: "y:1"}},
    ),
    "one that was aborted, and one that may have been": Story(
        [
            done("a", 0, 1, "x:1", aborted=True),
            done("b", 2, None, "x:2", "y:2"),
            done("c", 2, None, "x:3", "y:3"),
        ],
        {"x": {2: "x:2"}, "y": {0: "y:2"}},
    ),
    "dirty writes and write skew, which Kafka does not forbid": Story(
        [
            done("a", 0, 9, "x:1", "y:1", reads=[read("z", {})]),
            done("b", 0, 9, "x:2", "y:2", "z:2", reads=[read("y", {})]),
        ],
        {"x": {0: "x:1", 1: "x:2"}, "y": {0: "y:2", 1: "y:1"}, "z": {0: "z:2"}},
    ),
    "a read that begins behind a part of a transaction": Story(
        [
            done("a", 0, 1, "x:1", "x:2"),
            done("b", 2, 3, reads=[read("x", {1: "x:2"}, start=1)]),
        ],
        {"x": {0: "x:1", 1: "x:2"}},
    ),
}
BROKEN: Final = {
    "G1a": Story([done("a", 0, 1, "x:1", aborted=True)], {"x": {0: "x:1"}}),
    "G1a: x 0": Story(
        [
            done("a", 0, 1, "x:1", aborted=True),
            done("b", 2, 3, reads=[read("x", {0: "x:1"})]),
        ],
        {"x": {}},
    ),
    "G1b": Story(
        [done("a", 0, 9, "x:1", "x:2"), done("b", 1, 2, reads=[read("x", {0: "x:1"})])],
        {"x": {0: "x:1", 1: "x:2"}},
    ),
    "G1c: a, b": Story(
        [
            done("a", 0, 9, "x:1", reads=[read("y", {0: "y:1"})]),
            done("b", 0, 9, "y:1", reads=[read("x", {0: "x:1"})]),
        ],
        {"x": {0: "x:1"}, "y": {0: "y:1"}},
    ),
    "G1c: a, b saw": Story(
        [
            done("a", 0, 1, "x:0", reads=[read("x", {1: "x:1"}, start=1)]),
            done("b", 2, 3, "x:1"),
        ],
        {"x": {0: "x:0", 1: "x:1"}},
    ),
    "lost": Story([done("a", 0, 1, "x:1", "y:1")], {"x": {0: "x:1"}, "y": {}}),
    "fractured": Story([done("a", 0, None, "x:1", "y:1")], {"x": {0: "x:1"}, "y": {}}),
    "double": Story([done("a", 0, 1, "x:1")], {"x": {0: "x:1", 2: "x:1"}}),
    "garbage": Story([done("a", 0, 1, "x:1")], {"x": {0: "x:1", 2: "x:7"}}),
    "garbage: x:1 of a is in y": Story([done("a", 0, 1, "x:1")], {"y": {0: "x:1"}}),
    "order: x 0": Story(
        [
            done("a", 0, 9, "x:1"),
            done("b", 0, 9, "x:2"),
            done("c", 0, 9, reads=[read("x", {0: "x:1"})]),
        ],
        {"x": {0: "x:2", 1: "x:1"}},
    ),
    "order: x 1 is of a, which ended before b": Story(
        [done("a", 0, 1, "x:1"), done("b", 2, 3, "x:2")],
        {"x": {0: "x:2", 1: "x:1"}},
    ),
}


def check(story: Story) -> str:
    final = [read(key, values) for key, values in story.final.items()]
    return str(check_transactions(story.transactions, final))


@pytest.mark.parametrize("name", KEPT)
def test_what_kafka_promises_is_kept(name: str) -> None:
    assert " transactions (" in check(KEPT[name])


def test_dirty_writes_are_counted() -> None:
    name = "dirty writes and write skew, which Kafka does not forbid"
    assert check(KEPT[name]).endswith(" 2 reads, 1 dirty writes")


@pytest.mark.parametrize("name", BROKEN)
def test_planted_anomalies_are_found(name: str) -> None:
    with pytest.raises(Violation, match=name):
        check(BROKEN[name])


def test_groups_that_reach_each_other() -> None:
    edges = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": {"d"}, "f": {"a"}}
    assert sorted(sorted(group) for group in strongly_connected(edges)) == [
        ["a", "b", "c"],
        ["d", "e"],
    ]
    line = {str(number): {str(number + 1)} for number in range(5_000)}
    assert strongly_connected(line) == []
