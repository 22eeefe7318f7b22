"""What a search is for, and how it is typed."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.errors import InvalidRequest
from streamlog.http.console.messages.message_filter import (
    CONDITIONS_MAX,
    TEXT_MAX,
    JsonPath,
    MessageFilter,
)
from streamlog.record.codec import Record

ORDER = {
    "id": 7, "price": 10.5, "tags": ["new", "vip"], "paid": True, "none": None,
    "buyer": {"name": "Acme Corp.", "zip": "0042"}, "lines": [{"n": 1}, {"n": 2}], "a b": {"": 1},
}  # fmt: skip


@pytest.mark.parametrize(
    ("typed", "holds"),
    [
        ("$", True),
        ("$.id", True),
        ("$.id = 7", True),
        ("$.id == 7.0", True),
        ('$.id = "7"', False),
        ("$.id != 7", False),
        ("$.price >= 10", True),
        ("$.price>10.5", False),
        ("$.price <= 10.5", True),
        ("$.price < 11", True),
        ("$.paid = true", True),
        ("$.paid = 1", False),
        ("$.none = null", True),
        ("$.missing", False),
        ("$.missing != 3", False),
        ("$.buyer.name ~ acme", True),
        ("$.buyer.zip = 0042", True),
        ('$.buyer.zip = "0042"', True),
        ('$.buyer["name"] = Acme Corp.', True),
        ('$["a b"][""] = 1', True),
        ("$.tags[*] = vip", True),
        ("$.tags[-1] = vip", True),
        ("$.tags[2]", False),
        ("$.lines[*].n = 2", True),
        ("$.lines[*].n = 3", False),
        ("$.buyer < 3", False),
        ("$.buyer.name > Aaron", True),
        ("$.buyer.name.x", False),
    ],
)
def test_a_path(typed: str, holds: bool) -> None:
    assert JsonPath.of(typed).holds(ORDER) is holds


@pytest.mark.parametrize(
    "typed", ["", "id = 3", "$.", "$..a", "$.a =", "$[x]", "$['a']", "$.a b", "$" + ".a" * 33]
)
def test_a_path_that_is_not_understood_is_refused(typed: str) -> None:
    with pytest.raises(InvalidRequest, match="path:"):
        JsonPath.of(typed)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(JSON)
def test_every_value_is_found_by_its_own_path(value: Any) -> None:
    def check(it: Any, path: str) -> None:
        assert JsonPath.of(path).holds(value)
        if not isinstance(it, dict | list | str):
            assert JsonPath.of(f"{path} = {json.dumps(it)}").holds(value)
        if isinstance(it, dict):
            for name, inner in it.items():
                check(inner, f"{path}[{json.dumps(name)}]")
        elif isinstance(it, list):
            for number, inner in enumerate(it):
                check(inner, f"{path}[{number}]")

    check(value, "$")


@given(st.text(), JSON)
def test_whatever_is_typed_is_understood_or_refused(typed: str, value: Any) -> None:
    try:
        JsonPath.of("$" + typed).holds(value)
    except InvalidRequest as error:
        assert "\n" not in str(error)


def asked(**given: Any) -> MessageFilter:
    several = {name: given.pop(name, []) for name in ("header", "path")}
    return MessageFilter.of(given, several.__getitem__)


RECORD = Record(
    7, 0, b"eu-17", b'{"a": 1}', (("subject", b"orders.eu.new"), ("X-Tenant", b"acme"), ("E", None))
)


@pytest.mark.parametrize(
    ("wanted", "is_accepted"),
    [
        ({}, True),
        ({"key": "eu-"}, True),
        ({"key": "us"}, False),
        ({"subject": "orders.eu.new"}, True),
        ({"subject": "orders.*.new"}, True),
        ({"subject": "orders.>"}, True),
        ({"subject": "orders.*"}, False),
        ({"header": ["x-tenant"]}, True),
        ({"header": ["X-Tenant: acm"]}, True),
        ({"header": ["X-Tenant: other"]}, False),
        ({"header": ["E"]}, True),
        ({"header": ["X-Tenant", "missing"]}, False),
    ],
)
def test_what_need_not_be_decoded(wanted: dict[str, Any], is_accepted: bool) -> None:
    assert asked(**wanted).accepts_head(RECORD) is is_accepted
    assert asked(**wanted).is_empty is (not wanted)


def test_text_and_paths_are_of_the_decoded_value() -> None:
    wanted = asked(text="ACME", path=["$.a = 1"])
    assert wanted.accepts_value('{"name": "Acme"}', {"a": 1}, is_structured=True)
    assert not wanted.accepts_value("nothing", {"a": 1}, is_structured=True)
    assert not wanted.accepts_value("acme", None, is_structured=False), "a text has no paths"


def test_a_search_has_limits() -> None:
    for wrong in ({"text": "x" * (TEXT_MAX + 1)}, {"path": ["$"] * (CONDITIONS_MAX + 1)}):
        with pytest.raises(InvalidRequest, match="at most"):
            asked(**wrong)
