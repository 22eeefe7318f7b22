"""The description of the JSON API, and the status of each error."""

import inspect
import json
from typing import Any

import pytest
from openapi_spec_validator import validate

from streamlog import errors
from streamlog.control.control import OPERATIONS
from streamlog.errors import StreamlogError
from streamlog.http.api.errors import refusal, status_of
from streamlog.http.api.openapi import document


def references_of(content: object) -> set[str]:
    if isinstance(content, dict):
        own = {content["$ref"]} if isinstance(content.get("$ref"), str) else set()
        return own.union(*map(references_of, content.values()))
    return set().union(*map(references_of, content)) if isinstance(content, list) else set()


def test_the_document_is_valid_and_whole() -> None:
    made = document()
    validate(made)
    operations = [it for path in made["paths"].values() for it in path.values()]
    assert {it["operationId"] for it in operations} == set(OPERATIONS)
    known = {f"#/components/schemas/{it}" for it in made["components"]["schemas"]}
    assert references_of(made) == known


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_argument_is_told_once(name: str) -> None:
    spec = OPERATIONS[name]
    method, _, path = spec.http.partition(" ")
    made: dict[str, Any] = document()["paths"][path][method.lower()]
    told = [it["name"] for it in made.get("parameters", ())]
    if "requestBody" in made:
        told += made["requestBody"]["content"]["application/json"]["schema"]["properties"]
    if name == "rules.list":  # its filter is given by fields
        assert "principal" in told and "wanted" not in told
    else:
        assert sorted(told) == sorted(spec.arguments.model_fields)


def test_every_error_of_the_tree_has_a_status() -> None:
    kinds = [
        it for _, it in inspect.getmembers(errors, inspect.isclass)
        if issubclass(it, StreamlogError)
    ]  # fmt: skip
    for kind in kinds:
        error = kind.__new__(kind)
        status = status_of(error)
        assert (status < 500) == (isinstance(error, errors.InvalidRequest | errors.Overloaded))


@pytest.mark.parametrize(
    ("error", "status", "retry"),
    [
        (errors.StreamNotFound("x"), 404, False),
        (errors.MessageErased("x"), 404, False),
        (errors.TopicForbidden("x"), 403, False),
        (errors.InvalidSubject("x"), 400, False),
        (errors.NodeUnreachable("x"), 503, True),
        (errors.RequestTimedOut("x"), 504, True),
        (errors.PartlyDone("x"), 500, False),
    ],
)
def test_an_error_is_told_by_its_class(error: StreamlogError, status: int, retry: bool) -> None:
    answer = refusal(error)
    assert answer.status == status and ("Retry-After" in answer.headers) == retry
    told = json.loads(answer.text or "")
    assert told == {"error": {"code": type(error).__name__, "message": "x"}}
