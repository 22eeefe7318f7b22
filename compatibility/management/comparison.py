"""What differs between two answers to one request."""

from typing import Any, Final, NamedTuple

from compatibility.management.answer import Fields
from compatibility.management.request import Request

MISSING: Final = "(not there)"


class Difference(NamedTuple):
    """A field of an answer to a request."""

    scene: str
    request: Request
    path: str
    jetstream: Any
    streamlog: Any

    def __str__(self) -> str:
        return (
            f"[{self.scene}] {self.request.title}: {self.path}:"
            f" JetStream {self.jetstream!r}, streamlog {self.streamlog!r}"
        )


def differences(
    scene: str, request: Request, jetstream: Fields, streamlog: Fields
) -> list[Difference]:
    """An error on one side only is one difference, whatever else the other side told."""
    refused = [error_of(jetstream), error_of(streamlog)]
    if (refused[0] is None) != (refused[1] is None):
        told = [error or "accepted" for error in refused]
        return [Difference(scene, request, "error", told[0], told[1])]
    paths = dict.fromkeys([*jetstream, *streamlog])
    pairs = ((path, jetstream.get(path, MISSING), streamlog.get(path, MISSING)) for path in paths)
    return [Difference(scene, request, path, *pair) for path, *pair in pairs if pair[0] != pair[1]]


def error_of(fields: Fields) -> str | None:
    """In one line, if it is one."""
    if "error.code" in fields:
        numbers = f"{fields['error.code']}/{fields.get('error.err_code')}"
        return f"{numbers} {fields.get('error.description')}"
    if fields.get("status", "").startswith(("4", "5")):
        return str(fields["status"])
    if fields["messages"] == 0:
        return "no answer"
    return None
