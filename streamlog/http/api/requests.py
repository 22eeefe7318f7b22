"""A request as the arguments of an operation: from its path, its query, its body.

Reads and DELETE take a query; POST, PUT and PATCH take JSON. An argument that is an object of its own, as a filter
of rules, is given by its fields in a query. What is not taken is an error, not ignored.
"""

import asyncio
import json
from typing import Any, Final
from urllib.parse import urlsplit

from aiohttp import hdrs, web
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from streamlog.control.operation import OperationSpec
from streamlog.errors import InvalidRequest
from streamlog.http.api.errors import (
    BodyTimedOut,
    BodyTooLarge,
    LengthRequired,
    OtherSite,
    UnsupportedMediaType,
)

BODY_BYTES_MAX: Final = 256 * 1024
"""A stream of 10,000 partitions with the nodes of each has less."""
WITH_BODY: Final = frozenset({"POST", "PUT", "PATCH"})
JSON: Final = "application/json"


def fields_in_query(spec: OperationSpec, in_path: frozenset[str]) -> dict[str, tuple[str, ...]]:
    """By the parameter's name in the query, where its value goes among the arguments."""
    found: dict[str, tuple[str, ...]] = {}
    for name, it in spec.arguments.model_fields.items():
        model = model_of(it)
        if model is not None:
            found |= {inner: (name, inner) for inner in model.model_fields}
        elif name not in in_path:
            found[name] = (name,)
    return found


def model_of(field: FieldInfo) -> type[BaseModel] | None:
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def check_site(request: web.Request) -> None:
    """Raises OtherSite. A browser sends the password that its user gave to whatever page asks; it says, too,
    which page that is.
    """
    origin = request.headers.get(hdrs.ORIGIN)
    if origin is not None and urlsplit(origin).netloc != request.host:
        raise OtherSite("pages of other sites are not answered")


async def arguments_of(
    spec: OperationSpec, request: web.Request, *, timeout_s: float
) -> dict[str, Any]:
    """Raises InvalidRequest and what is below it."""
    given: dict[str, Any] = dict(request.match_info)
    if request.method in WITH_BODY:
        _add(given, await _body(request, timeout_s))
        if request.query:
            raise InvalidRequest(f"{request.method} takes its arguments as JSON, not in the query")
        return given
    if request.can_read_body:
        raise InvalidRequest(f"{request.method} takes its arguments in the query, not as a body")
    places = fields_in_query(spec, frozenset(given))
    for name in request.query:
        values = request.query.getall(name)
        if len(values) > 1:
            raise InvalidRequest(f"{name[:60]}: is given {len(values)} times")
        place = places.get(name, (name,))
        if len(place) == 1:
            _add(given, {name: values[0]})
        else:
            given.setdefault(place[0], {})[place[1]] = values[0]
    return given


def _add(given: dict[str, Any], more: dict[str, Any]) -> None:
    for name, value in more.items():
        if name in given:
            raise InvalidRequest(f"{name[:60]}: is in the path")
        given[name] = value


async def _body(request: web.Request, timeout_s: float) -> dict[str, Any]:
    """A form of another site's page may send anything but a content type of JSON."""
    if request.content_type != JSON:
        raise UnsupportedMediaType(f"send {JSON}, and say so in Content-Type")
    if hdrs.TRANSFER_ENCODING in request.headers:
        raise LengthRequired("send the body with a Content-Length, not in chunks")
    if hdrs.CONTENT_ENCODING in request.headers:
        raise UnsupportedMediaType("send the body as it is, without a Content-Encoding")
    if (request.content_length or 0) > BODY_BYTES_MAX:
        raise BodyTooLarge(f"a body has {BODY_BYTES_MAX} bytes at most")
    try:
        async with asyncio.timeout(timeout_s):
            data = await request.read()
    except TimeoutError:
        raise BodyTimedOut("the body was not there in time") from None
    if not data:
        return {}
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        raise InvalidRequest("the body is not JSON") from None
    if not isinstance(content, dict):
        raise InvalidRequest("the body has to be a JSON object")
    return content
