"""``/api/v1/openapi.json``: OpenAPI 3.1, out of the operations' types."""

import inspect
from collections.abc import Iterator
from typing import Any, Final, Literal

from pydantic import TypeAdapter

from streamlog import __version__
from streamlog.control.control import OPERATIONS, Control
from streamlog.control.operation import OperationSpec
from streamlog.http.api.errors import BASE
from streamlog.http.api.requests import JSON, WITH_BODY, fields_in_query, model_of

_REF: Final = "#/components/schemas/"
_ERROR: Final = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message"],
            "properties": {
                "code": {"type": "string", "description": "The name of the error's class."},
                "message": {"type": "string"},
            },
        }
    },
}

Schema = dict[str, Any]


def document() -> dict[str, Any]:
    """The whole API."""
    schemas, defs = _schemas()
    paths: dict[str, dict[str, Any]] = {}
    for name, spec in OPERATIONS.items():
        method, _, path = spec.http.partition(" ")
        taken = _resolved(schemas[name, "validation"], defs)
        returned = schemas[name, "serialization"]
        paths.setdefault(path, {})[method.lower()] = _operation(spec, taken, returned, defs)
    for name in OPERATIONS:  # these stand in their operation itself
        defs.pop(name.replace(".", "_"), None)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "streamlog",
            "version": __version__,
            "description": "Administration of a streamlog cluster. Any node answers for all.",
        },
        "servers": [{"url": BASE}],
        "security": [{"password": []}, {"token": []}, {}],
        "tags": list(_tags()),
        "paths": paths,
        "components": {
            "schemas": {**defs, "Error": _ERROR},
            "securitySchemes": {
                "password": {"type": "http", "scheme": "basic"},
                "token": {"type": "http", "scheme": "bearer"},
            },
        },
    }


def _schemas() -> tuple[dict[tuple[str, str], Schema], dict[str, Schema]]:
    """Of arguments and of results by operation, and what they refer to."""
    inputs: list[tuple[str, Literal["validation", "serialization"], TypeAdapter[Any]]] = []
    for name, spec in OPERATIONS.items():
        inputs.append((name, "validation", TypeAdapter(spec.arguments)))
        inputs.append((name, "serialization", spec.result))
    found, shared = TypeAdapter.json_schemas(inputs, ref_template=_REF + "{model}")
    return {(str(name), mode): it for (name, mode), it in found.items()}, shared["$defs"]


def _tags() -> Iterator[dict[str, str]]:
    for group in dict.fromkeys(spec.group for spec in OPERATIONS.values()):
        kind = getattr(Control, group).func.__annotations__["return"]
        yield {"name": group, "description": inspect.getdoc(kind) or ""}


def _resolved(schema: Schema, defs: dict[str, Schema]) -> Schema:
    ref = schema.get("$ref")
    return schema if ref is None else defs[ref.removeprefix(_REF)]


def _operation(
    spec: OperationSpec, taken: Schema, returned: Schema, defs: dict[str, Schema]
) -> dict[str, Any]:
    method, _, path = spec.http.partition(" ")
    properties: dict[str, Schema] = taken.get("properties", {})
    required: list[str] = taken.get("required", [])
    in_path = [it for it in properties if f"{{{it}}}" in path]
    parameters = [
        {"name": it, "in": "path", "required": True, "schema": properties[it]} for it in in_path
    ]
    made: dict[str, Any] = {
        "operationId": spec.name,
        "tags": [spec.group],
        "summary": spec.summary,
        "description": spec.description,
        "responses": {**_success(returned), "default": _failure()},
    }
    if method in WITH_BODY:
        body: Schema = {
            "type": "object",
            "properties": {it: properties[it] for it in properties if it not in in_path},
            "additionalProperties": False,
        }
        needed = [it for it in required if it not in in_path]
        if needed:
            body["required"] = needed
        made["requestBody"] = {"required": True, "content": {JSON: {"schema": body}}}
    else:
        for name, place in fields_in_query(spec, frozenset(in_path)).items():
            inner = _field_schema(spec, place, properties, defs)
            needed_here = len(place) == 1 and name in required
            parameters.append(
                {"name": name, "in": "query", "required": needed_here, "schema": inner}
            )
    if parameters:
        made["parameters"] = parameters
    return made


def _field_schema(
    spec: OperationSpec,
    place: tuple[str, ...],
    properties: dict[str, Schema],
    defs: dict[str, Schema],
) -> Schema:
    if len(place) == 1:
        return properties[place[0]]
    model = model_of(spec.arguments.model_fields[place[0]])
    assert model is not None
    fields: dict[str, Schema] = defs[model.__name__]["properties"]
    return fields[place[1]]


def _success(returned: Schema) -> dict[str, Any]:
    if returned == {"type": "null"}:
        return {"204": {"description": "It is done."}}
    return {"200": {"description": "The result.", "content": {JSON: {"schema": returned}}}}


def _failure() -> dict[str, Any]:
    schema = {"$ref": _REF + "Error"}
    return {"description": "It is refused, or failed.", "content": {JSON: {"schema": schema}}}
