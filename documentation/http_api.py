"""``docs/http-api.md``: the JSON API over HTTP, out of the operations of ``control``."""

import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from streamlog.http.api.errors import STATUSES
from streamlog.http.api.openapi import document
from streamlog.http.api.requests import BODY_BYTES_MAX

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = ROOT / "docs" / "http-api.md"

HEAD: Final = f"""\
# HTTP API

<!-- Made of streamlog/control/ by `python -m documentation`; `make lint` compares. -->

The HTTP listener (`http.port`) has a JSON API under `/api/v1`. It has the same operations, rights and limits as the
command line, the Kafka API and the management API over NATS. Any node answers: it forwards a request to the
controller or to the leader of the partition. `/api/v1/openapi.json` describes the API in OpenAPI 3.1.

```sh
curl -u admin -X POST http://localhost:9464/api/v1/streams \\
     -H 'Content-Type: application/json' -d '{{"config": {{"name": "orders", "subjects": ["orders.>"]}}}}'
curl -u admin 'http://localhost:9464/api/v1/streams?limit=10'
```

## Requests

- GET and DELETE take their arguments in the query. POST, PUT and PATCH take a JSON object with
  `Content-Type: application/json` and a `Content-Length` of at most {BODY_BYTES_MAX // 1024} KiB. A request without
  arguments sends `{{}}`.
- Unknown arguments are errors. The error names all arguments that are wrong.
- At most `http.api_requests_max` requests are answered at a time; others get status 429.
- A result is JSON with status 200. A request without a result gets status 204.

## Who may do what

The API takes the logins of the HTTP listener:

- **A user's password** (`http.basic_auth`). The request has the
  [rights](security.md#authorization) of the user.
- **A token** (`http.token_file`). A line `TOKEN USER` gives the rights of the user to the token. A token without a user
  has the rights of `User:ANONYMOUS`, which is enough for Prometheus.
- **No login**, if neither of these is set. The request has the rights of `User:ANONYMOUS`, or all rights if
  authentication is off.

A request without a user changes nothing: `http.api_writes = true` allows it to make changes, as far as its rights
allow. Set it only if everyone who can connect to the port may administer the cluster. `http.show_payloads` decides
whether the port shows messages. The audit log has every change, with `"by": "HTTP"`.

Requests from pages of other sites are refused: `Sec-Fetch-Site` must be `same-origin` or `none`, and `Origin`, if sent,
must name the host that was asked. A proxy in front of the node must pass `Host` on.

## Errors

```json
{{"error": {{"code": "StreamNotFound", "message": "there is no stream 'orders'"}}}}
```

A stream that a user may not see does not exist for that user: the answer is the same. Errors with `Retry-After`
may succeed later. After a status of 500 or more, a change may have been made.

"""


def page() -> str:
    """The whole page."""
    return (
        HEAD
        + "\n".join(_errors())
        + "\n\n## Operations\n"
        + "\n".join(_operations()).rstrip()
        + "\n"
    )


def _errors() -> Iterator[str]:
    yield "| status | code | |"
    yield "|--:|---|---|"
    for kind, status in sorted(STATUSES.items(), key=lambda it: (it[1], it[0].__name__)):
        first = (inspect.getdoc(kind) or "").partition(". ")[0].rstrip(".")
        yield f"| {status} | `{kind.__name__}` | {_cell(first)} |"


def _operations() -> Iterator[str]:
    made = document()
    tags = {it["name"]: it["description"] for it in made["tags"]}
    tag = ""
    for path, operations in made["paths"].items():
        for method, it in operations.items():
            if it["tags"] != [tag]:
                tag = it["tags"][0]
                yield f"\n### {tag.capitalize()}\n\n{tags[tag]}\n"
            yield f"#### `{method.upper()} {path}`\n\n{_cell(it['description'])}\n"
            rows = list(_arguments(it))
            if rows:
                yield "| argument | type | default |\n|---|---|---|"
                yield from rows
                yield ""


def _arguments(operation: dict[str, Any]) -> Iterator[str]:
    for it in operation.get("parameters", ()):
        yield _row(it["name"], it["schema"], it["required"])
    if "requestBody" in operation:
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        for name, it in schema["properties"].items():
            yield _row(name, it, name in schema.get("required", ()))


def _row(name: str, schema: dict[str, Any], required: bool) -> str:
    default = schema.get("default")
    shown = (
        "**required**"
        if required
        else ""
        if default in (None, "", [])
        else f"`{json.dumps(default)}`"
    )
    return f"| `{name}` | {_type(schema)} | {shown} |"


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return f"`{schema['$ref'].rpartition('/')[2]}`"
    if "anyOf" in schema:
        return " or ".join(_type(it) for it in schema["anyOf"] if it != {"type": "null"})
    if "enum" in schema:
        return ", ".join(f"`{it}`" for it in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_type(schema['items'])}" if "items" in schema else "list"
    return str(schema.get("format") or schema.get("type", "any"))


def _cell(text: str) -> str:
    return text.replace("``", "`").replace("|", "\\|")
