"""Schemas of values: what is refused when a schema is set, and why."""

import base64
import json
from typing import Any

import pytest

from streamlog.record.schema.json_schema import json_schema
from streamlog.record.schema.table_schema import TABLE_SCHEMA_BYTES_MAX, TableSchema

TEXT = {"type": "string"}


@pytest.mark.parametrize(
    ("about_a", "told"),
    [
        ({"type": "string", "contentEncoding": "base64"}, "a has 'contentEncoding', by which"),
        ({"type": "integer", "minLength": 1}, "a has 'minLength', by which values of type integer"),
        ({"type": "integer", "multipleOf": 2}, "'multipleOf'"),
        ({"type": "array", "items": TEXT, "uniqueItems": True}, "'uniqueItems'"),
        ({"type": "array", "items": TEXT, "enum": [["a"]]}, "'enum'"),
        ({"type": "object", "properties": {"b": TEXT}, "minProperties": 1}, "'minProperties'"),
        ({"type": "object", "properties": {"b": {**TEXT, "not": {}}}}, "a.b has 'not'"),
        ({"type": "array", "items": {**TEXT, "if": {}}}, r"a\[\] has 'if'"),
        ({"oneOf": [TEXT, {"type": "integer"}]}, "a has not one type"),
        ({"type": ["string", "integer"]}, "a has not one type"),
        ({"type": "string", "format": "email"}, "a has the format 'email', which is not checked"),
        ({"type": "string", "pattern": "("}, "a has a 'pattern' that is none"),
        ({"type": "string", "pattern": "(?!a)b"}, "looks around"),
        ({"type": "string", "pattern": r"(a)\1"}, "refers back"),
        ({"type": "string", "enum": ["x", 1]}, "of another type than string"),
        ({"type": "string", "minLength": "1"}, "'minLength' that is no number"),
        ({"type": "number", "maximum": 10**400}, "'maximum' that is no number"),
        ({"$ref": "#/$defs/none"}, "a has a \\$ref to nothing"),
        ({"$ref": "http://x/y"}, "out of the schema"),
        ({"$ref": "#"}, "is deeper than 32, or contains itself"),
        ({"$ref": "#/$defs/twice0"}, "more than 2000 properties"),
        ({"$ref": "#/$defs/text", "type": "string"}, "has 'type', and so has"),
        ({"type": "object"}, "a has no properties"),
        ({"type": "object", "properties": {"b": TEXT}, "required": ["c"]}, "requires 'c'"),
        (
            {"type": "object", "properties": {"b": TEXT}, "additionalProperties": TEXT},
            "neither true nor false",
        ),
        (True, "is not described by an object"),
    ],
)
def test_what_would_not_be_checked_is_refused(about_a: Any, told: str) -> None:
    twice = {
        f"twice{i}": {
            "type": "object",
            "properties": {name: {"$ref": f"#/$defs/twice{i + 1}"} for name in ("l", "r")},
        }
        for i in range(20)
    }
    definitions = {"text": TEXT, **twice, "twice20": TEXT}
    schema = {"type": "object", "properties": {"a": about_a}, "$defs": definitions}
    with pytest.raises(ValueError, match=told):
        json_schema(json.dumps(schema))


@pytest.mark.parametrize("keyword", ["allOf", "patternProperties", "unevaluatedProperties"])
def test_keywords_of_the_whole_are_refused_too(keyword: str) -> None:
    with pytest.raises(ValueError, match=f"the schema has '{keyword}'"):
        json_schema(json.dumps({"properties": {"a": TEXT}, keyword: {}}))


def test_references_and_nullable_types_are_followed() -> None:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "T",
        "x-owner": "me",
        "properties": {
            "a": {"$ref": "#/$defs/a~1b", "description": "as elsewhere"},
            "b": {"anyOf": [{"$ref": "#/$defs/a~1b"}, {"type": "null"}], "default": None},
        },
        "required": ["a", "b"],
        "$defs": {"a/b": {"type": "integer", "minimum": 3}},
    }
    a, b = json_schema(json.dumps(schema)).inner
    assert (a.kind, a.rules.low, a.is_required) == ("integer", 3, True)
    assert (b.kind, b.rules.low, b.is_required) == ("integer", 3, False)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "write json SCHEMA"),
        ('{"properties": {}}', "write json SCHEMA"),
        ("json", "not JSON"),
        ("json " + "[" * 20_000, "not JSON"),
        ("json []", "not an object"),
        ("json {}", "no properties"),
        ("avro {}", "not the schema of an Avro record"),
        ('avro {"type": "record"}', "no fields"),
        ("protobuf p.M !", "not Base64"),
        ("protobuf p.M", "write json SCHEMA"),
        ("protobuf p.M " + base64.b64encode(b"other").decode(), "no message p.M"),
        ("json " + " " * TABLE_SCHEMA_BYTES_MAX, "more than 32767 bytes"),
    ],
)
def test_what_cannot_be_a_schema_is_refused(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        TableSchema.parse(text)


@pytest.mark.parametrize(
    "text",
    [
        'json {"properties": {"a": {"type": "string"}}}',
        'avro {"type": "record", "name": "r", "fields": [{"name": "a", "type": "long"}]}',
        "protobuf p.M " + base64.b64encode(b"..M..").decode(),
    ],
)
def test_schemas_are_read_as_they_are_written(text: str) -> None:
    assert str(TableSchema.parse(f" {text}\n")) == text
    assert TableSchema.parse(text).data
