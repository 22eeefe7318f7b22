"""Conditions: each has one code, which keeps its meaning, and says what to do."""

import importlib
import pkgutil
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import streamlog
from documentation.codes import alerts_by_code
from streamlog.cli.explain import PACKAGE, Declared, declared
from streamlog.condition import AREAS, CRITICAL, NOTE, WARNING, Condition

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "tests" / "kept" / "codes.txt"
IDENTIFIERS = Counter(
    name
    for path in PACKAGE.rglob("*.py")
    for name in re.findall(r"\b[A-Z][A-Z_0-9]+\b", path.read_text())
)
"""How often each constant is named in the code."""


def test_what_is_read_out_of_the_source_is_what_the_modules_declare() -> None:
    imported: dict[tuple[str, str], Condition] = {}
    for found in pkgutil.walk_packages(streamlog.__path__, "streamlog."):
        if found.name.endswith("__main__"):
            continue
        for name, value in vars(importlib.import_module(found.name)).items():
            if isinstance(value, Condition):
                imported[value.code, name] = value
    assert {(it.condition.code, it.name): it.condition for it in declared()} == imported


def test_no_code_is_given_twice() -> None:
    codes = [it.condition.code for it in declared()]
    assert len(codes) == len(set(codes)) > 150


def test_a_code_keeps_its_meaning() -> None:
    """``tests/kept/codes.txt`` has every code that there ever was, with its title. A new condition
    is added to it; one that goes stays in it, marked ``(gone)``, so that its code is not given again.
    """
    lines = [line.split(" ", 1) for line in KEPT.read_text().splitlines()]
    kept = {code: title for code, title in lines if not title.endswith(" (gone)")}
    gone = {code for code, title in lines if title.endswith(" (gone)")}
    assert len(lines) == len(kept) + len(gone), "a code is there twice"
    assert [code for code, _ in lines] == sorted(code for code, _ in lines)
    assert kept == {it.condition.code: it.condition.title for it in declared()}
    assert not gone & {it.condition.code for it in declared()}


def problems_of(it: Declared) -> Iterator[str]:
    condition = it.condition
    if not re.fullmatch(r"SL-\d{4}", condition.code) or condition.code[3:5] not in AREAS:
        yield "the code is of no area"
    if condition.severity not in (CRITICAL, WARNING, NOTE):
        yield "there is no such severity"
    if not condition.title or condition.title.endswith("."):
        yield "a title is there, and is no sentence"
    if "\n" in condition.remedy or len(condition.remedy) >= 200 or condition.remedy.endswith("."):
        yield "a remedy is one short line, and no sentence"
    if not condition.meaning.endswith("."):
        yield "a meaning is in sentences"
    if condition.runbook and not (ROOT / "docs" / condition.runbook).exists():
        yield "there is no such runbook"
    if IDENTIFIERS[it.name] < 2 and condition.code not in alerts_by_code():
        yield "it is reported neither by the code nor by an alert"
    if re.search(r"[{}]", condition.remedy_for({})):
        yield "the log, which has no facts but its own keys, and the documentation show the remedy as well"


def test_each_is_complete_and_reported() -> None:
    found = {it.condition.code: list(problems_of(it)) for it in declared()}
    assert {code: problems for code, problems in found.items() if problems} == {}


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"code": "SL-1"}, "the code is of no area"),
        ({"severity": "bad"}, "there is no such severity"),
        ({"title": "It is down."}, "a title is there, and is no sentence"),
        ({"remedy": "start it."}, "a remedy is one short line, and no sentence"),
        ({"meaning": "it is down"}, "a meaning is in sentences"),
        ({"runbook": "none.md"}, "there is no such runbook"),
    ],
)
def test_what_is_not_complete_is_noticed(wrong: dict[str, str], problem: str) -> None:
    right = declared()[0]
    assert list(problems_of(right)) == []
    condition = replace(right.condition, **wrong)  # type: ignore[arg-type]
    assert problem in list(problems_of(right._replace(condition=condition)))


def test_a_remedy_is_filled_in() -> None:
    condition = Condition("SL-9999", "it", "start node {node} at {host}")
    assert condition.remedy_for({"node": 3}) == "start node 3 at HOST"


def test_other_words_have_the_same_code() -> None:
    condition = Condition("SL-9999", "it", "start it", meaning="It is down.")
    other = condition.logged_as("session over")
    assert (str(other), str(condition)) == ("session over", "it")
    assert (other.code, other.remedy) == (condition.code, condition.remedy)


def test_alerts_name_codes_that_there_are() -> None:
    assert alerts_by_code().keys() <= {it.condition.code for it in declared()}
