"""Errors as HTTP tells them: a status, and ``{"error": {"code": ..., "message": ...}}``.

The code is the name of the error's class, as in ``streamlog.errors``.
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from aiohttp import web

from streamlog import errors
from streamlog.errors import InvalidRequest, StreamlogError

BASE: Final = "/api/v1"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class LengthRequired(InvalidRequest):
    """A body in chunks: who sends it has to say how long it is."""


class BodyTooLarge(InvalidRequest):
    """A body is larger than any operation needs."""


class BodyTimedOut(InvalidRequest):
    """A body was not there in time."""


class UnsupportedMediaType(InvalidRequest):
    """A body is not JSON, or does not say so."""


class OtherSite(errors.NotAuthorized):
    """A page of another site asks through a user's browser."""


class WritesDisabled(errors.NotAuthorized):
    """Who did not log in changes nothing over HTTP."""


class PayloadsHidden(errors.NotAuthorized):
    """This port shows no messages."""


STATUSES: Final[Mapping[type[StreamlogError], int]] = {
    errors.InvalidRequest: 400,
    errors.AuthenticationFailed: 401,
    errors.NotAuthorized: 403,
    errors.StreamNotFound: 404,
    errors.PartitionNotFound: 404,
    errors.UnknownTopicId: 404,
    errors.MessageNotFound: 404,
    errors.NodeNotFound: 404,
    errors.GroupNotFound: 404,
    errors.TransactionNotFound: 404,
    BodyTimedOut: 408,
    errors.StreamExists: 409,
    errors.StreamStandsStill: 409,
    errors.GroupNotEmpty: 409,
    errors.NoOpenTransaction: 409,
    errors.StreamFull: 409,
    errors.NodeIdTaken: 409,
    errors.StalePartition: 409,
    errors.StaleReplica: 409,
    errors.StaleNode: 409,
    errors.FencedLeaderEpoch: 409,
    LengthRequired: 411,
    BodyTooLarge: 413,
    errors.RecordTooLarge: 413,
    UnsupportedMediaType: 415,
    errors.OffsetOutOfRange: 416,
    errors.Overloaded: 429,
    errors.Unavailable: 503,
    errors.RequestTimedOut: 504,
    errors.StorageFull: 507,
}
"""Of a class and of those below it that are not named themselves; of all others 500."""

_RETRY_AFTER_S: Final = 1


def status_of(error: StreamlogError) -> int:
    return next((STATUSES[it] for it in type(error).__mro__ if it in STATUSES), 500)


def refusal(error: StreamlogError) -> web.Response:
    """The answer of the API."""
    headers = {"Retry-After": str(_RETRY_AFTER_S)} if error.retriable else {}
    return _refusal(status_of(error), type(error).__name__, str(error), headers)


def refused(
    request: web.Request,
    status: int,
    code: str,
    text: str,
    headers: Mapping[str, str] | None = None,
) -> web.Response:
    """What was refused before it came to a handler: JSON for the API, else a line of text."""
    if is_for_api(request):
        return _refusal(status, code, text, headers or {})
    return web.Response(status=status, text=f"{text}\n", headers=headers)


def is_for_api(request: web.Request) -> bool:
    return request.path.startswith(f"{BASE}/")


@web.middleware
async def errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    """What aiohttp itself refuses: a path that there is not, a method that it does not take, ..."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        if not is_for_api(request):
            raise
        headers = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else {}
        code = type(error).__name__.removeprefix("HTTP")
        return _refusal(error.status, code, f"{request.method} {request.path}", headers)


def _refusal(status: int, code: str, message: str, headers: Mapping[str, str]) -> web.Response:
    body = json.dumps({"error": {"code": code, "message": message}})
    return web.Response(
        status=status, text=body, content_type="application/json", headers=dict(headers)
    )
