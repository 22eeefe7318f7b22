"""Conditions: each has one code, which keeps its meaning, and says what to do."""

import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import streamlog
from documentation.codes import alerts_by_code
from streamlog.cli.explain import PACKAGE, Declared, declared
from streamlog.condition import AREAS, CRITICAL, NOTE, WARNING, Condition

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "tests" / "kept" / "codes.txt"
SOURCE = "".join(path.read_text() for path in PACKAGE.rglob("*.py"))

each = pytest.mark.parametrize("it", declared(), ids=lambda it: it.condition.code)


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


@each
def test_it_is_complete(it: Declared) -> None:
    condition = it.condition
    assert re.fullmatch(r"SL-\d{4}", condition.code)
    assert condition.code[3:5] in AREAS
    assert condition.severity in (CRITICAL, WARNING, NOTE)
    assert condition.title and not condition.title.endswith(".")
    assert "\n" not in condition.remedy and len(condition.remedy) < 200
    assert not condition.remedy.endswith(".")
    assert condition.meaning.endswith("."), "in sentences"
    assert not condition.runbook or (ROOT / "docs" / condition.runbook).exists()


@each
def test_it_is_reported(it: Declared) -> None:
    """By the code, or by an alert."""
    is_used = len(re.findall(rf"\b{it.name}\b", SOURCE)) > 1
    assert is_used or it.condition.code in alerts_by_code()


@each
def test_its_remedy_has_no_place_for_what_is_not_known(it: Declared) -> None:
    """The log, which has no facts but its own keys, and the documentation show it as well."""
    assert not re.search(r"[{}]", it.condition.remedy_for({}))


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
