"""Plays the scenes to two servers and tells what differs."""

from collections.abc import Iterable, Sequence

from compatibility.management.answer import Fields, fields_of
from compatibility.management.comparison import Difference, differences
from compatibility.management.request import Request, Scene
from compatibility.management.wire import Wire

PREFIX = "$JS.API."
"""Under a domain nats-server maps the verbs that it knows, so that others are not answered."""


async def play(scenes: Iterable[Scene], jetstream: str, streamlog: str) -> list[Difference]:
    """``jetstream`` and ``streamlog``: URLs of their NATS servers."""
    found: list[Difference] = []
    async with Wire.to(jetstream) as one, Wire.to(streamlog) as other:
        for scene in scenes:
            for request in scene.requests:
                theirs, ours = await _answer(one, request), await _answer(other, request)
                if not request.quiet:
                    found += differences(scene.name, request, theirs, ours)
    return found


def count(scenes: Sequence[Scene]) -> int:
    """Of the requests that are compared."""
    return sum(not request.quiet for scene in scenes for request in scene.requests)


async def _answer(wire: Wire, request: Request) -> Fields:
    verb = request.verb if isinstance(request.verb, bytes) else request.verb.encode()
    subject = verb if request.is_publish else PREFIX.encode() + verb
    is_direct = verb.startswith(b"DIRECT.GET")
    several = is_direct and any(key in request.body for key in (b'"batch"', b'"multi_last"'))
    headers = request.block or request.headers
    replies = await wire.ask(subject, request.body, headers, several=several)
    return fields_of(replies, verb.decode(errors="replace"))
