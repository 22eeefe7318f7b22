"""The judge accepts histories that keep the promises, and names the operation of those that do not."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from tests.judges.judging import NotLinearizable, judge, why_missing

pytestmark = pytest.mark.peers

FOREVER: Final = None


class Op(NamedTuple):
    """One line; ``of`` is the model. Without an output its outcome is unknown."""

    of: str
    kind: str
    call: int
    end: int | None
    given: dict[str, Any]
    told: dict[str, Any] | None


def log(kind: str, call: int, end: int | None, told: Any = None, **given: Any) -> Op:
    return Op("log", kind, call, end, given, told)


def expected(kind: str, call: int, end: int | None, told: Any = None, **given: Any) -> Op:
    return Op("expected", kind, call, end, given, told)


def bucket(kind: str, call: int, end: int | None, told: Any = None, **given: Any) -> Op:
    return Op("bucket", kind, call, end, given, told)


def commits(kind: str, call: int, end: int | None, told: Any = None, **given: Any) -> Op:
    return Op("commits", kind, call, end, given, told)


KEPT: Final[dict[str, Sequence[Op]]] = {
    "appends at the same time, in the order of their offsets": [
        log("append", 0, 9, {"offset": 1}, value="a"),
        log("append", 1, 8, {"offset": 0}, value="b"),
        log("read", 10, 11, {"value": "b"}, offset=0),
        log("read", 10, 11, {"value": "a"}, offset=1),
        log("read", 10, 11, {"missing": True}, offset=2),
        log("end", 12, 13, {"offset": 2}),
    ],
    "an append without an outcome that took effect": [
        log("append", 0, FOREVER, value="a"),
        log("append", 1, 2, {"offset": 1}, value="b"),
        log("read", 3, 4, {"value": "a"}, offset=0),
    ],
    "an append without an outcome that took effect, and was not read": [
        log("append", 0, FOREVER, value="a"),
        log("append", 1, 2, {"offset": 1}, value="b"),
    ],
    "an append without an outcome that did not take effect": [
        log("append", 0, FOREVER, value="a"),
        log("append", 1, 2, {"offset": 0}, value="b"),
        log("end", 3, 4, {"offset": 1}),
    ],
    "an append that was refused": [
        log("append", 0, 1, {"refused": True}, value="a"),
        log("end", 2, 3, {"offset": 0}),
    ],
    "a stream that is deleted and made again": [
        log("append", 0, 1, {"offset": 0}, value="a"),
        log("delete", 2, 6, {}),
        log("append", 3, FOREVER, value="late"),
        log("create", 7, 8, {}),
        log("append", 9, 10, {"offset": 0}, value="b"),
        log("read", 11, 12, {"value": "b"}, offset=0),
    ],
    "a stream that is being deleted, and that some nodes still know": [
        log("append", 0, 1, {"offset": 0}, value="a"),
        log("delete", 2, 20, {}),
        log("read", 3, 4, {"missing": True}, offset=0),
        log("read", 5, 6, {"value": "a"}, offset=0),
        log("read", 7, 8, {"missing": True}, offset=0),
        log("read", 21, 22, {"missing": True}, offset=0),
        log("create", 23, 24, {}),
        log("end", 25, 26, {"offset": 0}),
    ],
    "a deletion without an outcome": [
        log("append", 0, 1, {"offset": 0}, value="a"),
        log("delete", 2, FOREVER),
        log("read", 3, 4, {"missing": True}, offset=0),
        log("read", 5, 6, {"value": "a"}, offset=0),
    ],
    "two publishers, one of whom expected the last sequence": [
        expected("publish", 0, 1, {"sequence": 1}, value="a", expected=0),
        expected("publish", 2, 5, {"sequence": 2}, value="b", expected=1),
        expected("publish", 2, 5, {"conflict": True, "last": 2}, value="c", expected=1),
        expected("read", 6, 7, {"sequence": 2, "value": "b"}),
    ],
    "a publisher without an outcome, whose message another one replaced": [
        expected("publish", 0, FOREVER, value="a", expected=0),
        expected("publish", 1, 2, {"conflict": True, "last": 3}, value="b", expected=0),
        expected("publish", 4, 5, {"sequence": 4}, value="c", expected=3),
    ],
    "a key that is put, got, updated, deleted and created again": [
        bucket("create", 0, 1, {"sequence": 1}, value="a"),
        bucket("create", 2, 3, {"conflict": True}, value="b"),
        bucket("put", 4, 5, {"sequence": 2}, value="c"),
        bucket("update", 6, 7, {"sequence": 3}, value="d", expected=2),
        bucket("get", 8, 9, {"sequence": 3, "value": "d"}),
        bucket("delete", 10, 11, {}),
        bucket("get", 12, 13, {"missing": True, "sequence": 4}),
        bucket("create", 14, 15, {"sequence": 5}, value="e"),
    ],
    "a get beside a put sees the older value": [
        bucket("put", 0, 1, {"sequence": 1}, value="a"),
        bucket("put", 2, 9, {"sequence": 2}, value="b"),
        bucket("get", 3, 4, {"sequence": 1, "value": "a"}),
        bucket("get", 5, 6, {"sequence": 2, "value": "b"}),
    ],
    "a delete without an outcome": [
        bucket("put", 0, 1, {"sequence": 1}, value="a"),
        bucket("delete", 2, FOREVER),
        bucket("get", 3, 4, {"sequence": 1, "value": "a"}),
        bucket("get", 5, 6, {"missing": True}),
    ],
    "commits": [
        commits("fetch", 0, 1, {"missing": True}),
        commits("commit", 2, 3, {}, offset=10),
        commits("commit", 4, FOREVER, offset=20),
        commits("fetch", 5, 6, {"offset": 10}),
        commits("fetch", 7, 8, {"offset": 20}),
    ],
}

BROKEN: Final[dict[str, tuple[Sequence[Op], str]]] = {
    "a lost ack": (
        [
            log("append", 0, 1, {"offset": 0}, value="a"),
            log("append", 2, 3, {"offset": 0}, value="b"),
        ],
        r"client 1 append .*\"b\".* cannot be placed",
    ),
    "a lost end of the log": (
        [
            log("append", 0, 1, {"offset": 0}, value="a"),
            log("read", 2, 3, {"missing": True}, offset=0),
        ],
        r"client 1 read .*\"offset\":0.* cannot be placed",
    ),
    "a double": (
        [
            log("append", 0, 1, {"offset": 0}, value="a"),
            log("read", 2, 3, {"value": "a"}, offset=1),
        ],
        r"client 1 read .*\"offset\":1.* cannot be placed",
    ),
    "a double of what had no outcome": (
        [
            log("append", 0, FOREVER, value="a"),
            log("read", 2, 3, {"value": "a"}, offset=0),
            log("read", 4, 5, {"value": "a"}, offset=1),
        ],
        r"client 2 read .*\"offset\":1.* cannot be placed",
    ),
    "a stale read": (
        [
            log("append", 0, 1, {"offset": 0}, value="a"),
            log("append", 2, 3, {"offset": 1}, value="b"),
            log("end", 4, 5, {"offset": 1}),
        ],
        r"client 2 end .* cannot be placed",
    ),
    "a read of what was taken back": (
        [
            log("append", 0, FOREVER, value="a"),
            log("read", 1, 2, {"value": "a"}, offset=0),
            log("append", 3, 4, {"offset": 0}, value="b"),
        ],
        r"client 2 append .* cannot be placed",
    ),
    "a message that was refused and stored": (
        [
            log("append", 0, 1, {"refused": True}, value="a"),
            log("read", 2, 3, {"value": "a"}, offset=0),
        ],
        r"client 1 read .* cannot be placed",
    ),
    "a record of a deleted stream": (
        [
            log("append", 0, 1, {"offset": 0}, value="a"),
            log("delete", 2, 3, {}),
            log("create", 4, 5, {}),
            log("read", 6, 7, {"value": "a"}, offset=0),
        ],
        r"client 3 read .* cannot be placed",
    ),
    "an ack of a stream that was deleted": (
        [
            log("delete", 0, 1, {}),
            log("append", 2, 3, {"offset": 0}, value="a"),
            log("create", 4, 5, {}),
        ],
        r"client 1 append .* cannot be placed",
    ),
    "two publishers who expected the same sequence, and both were acknowledged": (
        [
            expected("publish", 0, 1, {"sequence": 1}, value="a", expected=0),
            expected("publish", 2, 5, {"sequence": 2}, value="b", expected=1),
            expected("publish", 2, 6, {"sequence": 3}, value="c", expected=1),
        ],
        r"client \d publish .*\"[bc]\".* cannot be placed",
    ),
    "a conflict without a cause": (
        [
            expected("publish", 0, 1, {"sequence": 1}, value="a", expected=0),
            expected("publish", 2, 3, {"conflict": True}, value="b", expected=1),
        ],
        r"client 1 publish .* cannot be placed",
    ),
    "a conflict with a message that never was": (
        [
            expected("publish", 0, 1, {"sequence": 1}, value="a", expected=0),
            expected("publish", 2, 3, {"conflict": True, "last": 2}, value="b", expected=0),
            expected("read", 4, 5, {"sequence": 1, "value": "a"}),
        ],
        r"cannot be placed",
    ),
    "a get of an older value": (
        [
            bucket("put", 0, 1, {"sequence": 1}, value="a"),
            bucket("put", 2, 3, {"sequence": 2}, value="b"),
            bucket("get", 4, 5, {"sequence": 1, "value": "a"}),
        ],
        r"client 2 get .* cannot be placed",
    ),
    "a get of an older value after a newer one, while the put lasts": (
        [
            bucket("put", 0, 1, {"sequence": 1}, value="a"),
            bucket("put", 2, 9, {"sequence": 2}, value="b"),
            bucket("get", 3, 4, {"sequence": 2, "value": "b"}),
            bucket("get", 5, 6, {"sequence": 1, "value": "a"}),
        ],
        r"client 3 get .* cannot be placed",
    ),
    "a key that is created twice": (
        [
            bucket("create", 0, 5, {"sequence": 1}, value="a"),
            bucket("create", 4, 6, {"sequence": 2}, value="b"),
        ],
        r"client \d create .* cannot be placed",
    ),
    "a key that is back after its delete": (
        [
            bucket("put", 0, 1, {"sequence": 1}, value="a"),
            bucket("delete", 2, 3, {}),
            bucket("get", 4, 5, {"sequence": 1, "value": "a"}),
        ],
        r"client 2 get .* cannot be placed",
    ),
    "a commit that went back": (
        [
            commits("commit", 0, 1, {}, offset=10),
            commits("commit", 2, 3, {}, offset=20),
            commits("fetch", 4, 5, {"offset": 10}),
        ],
        r"client 2 fetch .* cannot be placed",
    ),
    "a commit that is gone": (
        [
            commits("commit", 0, 1, {}, offset=10),
            commits("fetch", 2, 3, {"missing": True}),
        ],
        r"client 1 fetch .* cannot be placed",
    ),
}


@pytest.fixture(scope="module", autouse=True)
def _go() -> None:
    if reason := why_missing():
        pytest.skip(f"the judge cannot be built: {reason}")


def write(folder: Path, operations: Sequence[Op], key: str = "orders/0") -> Path:
    """Each by a client of its own."""
    path = folder / "history.jsonl"
    with path.open("a") as file:
        for client, it in enumerate(operations):
            line = {
                "client": client,
                "call_ns": it.call,
                "return_ns": it.end,
                "model": it.of,
                "key": key,
                "kind": it.kind,
                "input": it.given,
                "output": it.told,
            }
            file.write(json.dumps(line) + "\n")
    return path


@pytest.mark.parametrize("name", KEPT)
def test_promises_that_are_kept(tmp_path: Path, name: str) -> None:
    said = judge(write(tmp_path, KEPT[name]))
    assert said == f"linearizable: {KEPT[name][0].of} {len(KEPT[name])} operations of 1 objects"


@pytest.mark.parametrize("name", BROKEN)
def test_planted_violations_are_found(tmp_path: Path, name: str) -> None:
    operations, unplaced = BROKEN[name]
    with pytest.raises(
        NotLinearizable, match=rf"violation: {operations[0].of} orders/0: .*{unplaced}"
    ):
        judge(write(tmp_path, operations))
    picture = tmp_path / f"{operations[0].of}-orders-0.html"
    assert "<html" in picture.read_text()


LATE: Final[dict[str, Sequence[Op]]] = {
    "an older end of a log": [
        log("append", 0, 1, {"offset": 0}, value="a"),
        log("append", 2, 3, {"offset": 1}, value="b"),
        log("end", 1_000, 1_001, {"offset": 1}),
    ],
    "an older value": [
        bucket("put", 0, 1, {"sequence": 1}, value="a"),
        bucket("put", 2, 3, {"sequence": 2}, value="b"),
        bucket("get", 1_000, 1_001, {"sequence": 1, "value": "a"}),
    ],
    "an older commit": [
        commits("commit", 0, 1, {}, offset=10),
        commits("commit", 2, 3, {}, offset=20),
        commits("fetch", 1_000, 1_001, {"offset": 10}),
    ],
}


@pytest.mark.parametrize("name", LATE)
def test_reads_may_be_as_late_as_they_are_allowed_to_be(tmp_path: Path, name: str) -> None:
    path = write(tmp_path, LATE[name])
    assert judge(path, late_s=998e-9)
    for late_s in (0.0, 996e-9):
        with pytest.raises(NotLinearizable, match="client 2 "):
            judge(path, late_s=late_s)


def test_a_conflict_is_never_late(tmp_path: Path) -> None:
    """Its message would be stored by the leader that knows more."""
    history = [
        expected("publish", 0, 1, {"sequence": 1}, value="a", expected=0),
        expected("publish", 2, 3, {"sequence": 2}, value="b", expected=1),
        expected("publish", 1_000, 1_001, {"conflict": True, "last": 1}, value="c", expected=2),
    ]
    with pytest.raises(NotLinearizable):
        judge(write(tmp_path, history), late_s=1.0)


def test_an_offset_is_never_late(tmp_path: Path) -> None:
    """A record that was not acknowledged at another offset before."""
    for name in ("a lost ack", "a double", "a read of what was taken back"):
        with pytest.raises(NotLinearizable):
            judge(write(tmp_path, BROKEN[name][0], name), late_s=1.0)


def test_one_bad_object_among_good_ones(tmp_path: Path) -> None:
    for number, operations in enumerate(KEPT.values()):
        path = write(tmp_path, operations, f"good-{number}")
    judge(path)
    write(tmp_path, BROKEN["a commit that went back"][0], "bad")
    with pytest.raises(NotLinearizable, match="violation: commits bad: ") as caught:
        judge(path)
    assert str(caught.value).count("violation") == 1


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("", "unexpected end of JSON input"),
        ('{"model": "blog"}', 'no model "blog"'),
        ('{"model": "log", "kind": "put"}', 'no operation "put"'),
        ('{"model": "log", "kind": "append"}', "the input of append is incomplete"),
        ('{"model": "log", "kind": "end"}', "leave it out"),
        (
            '{"model": "log", "kind": "end", "call_ns": 1, "return_ns": 0, "output": {"offset": 0}}',
            "returned before it was called",
        ),
        (
            '{"model": "log", "kind": "end", "return_ns": 1, "output": {}}',
            "the output of end is incomplete",
        ),
    ],
)
def test_lines_that_are_no_operations(tmp_path: Path, line: str, why: str) -> None:
    path = write(tmp_path, KEPT["commits"])
    with path.open("a") as file:
        file.write(line + "\n")
    with pytest.raises(ValueError, match=f"line {len(KEPT['commits']) + 1}: .*{why}"):
        judge(path)
