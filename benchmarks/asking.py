"""Requests of the management API over one connection, some at a time."""

from collections.abc import Iterable
from itertools import islice
from typing import Final, NamedTuple

from benchmarks.connection import BenchmarkError, Connection

PREFIX: Final = "$JS.API."
INBOX: Final = "_INBOX.asking"
TYPE: Final = b"io.nats.jetstream.api.v1."
"""Once in each answer."""


class Question(NamedTuple):
    """A request of the API."""

    verb: str
    """What comes after the prefix."""
    body: bytes = b""


def ask_all(nats: str, questions: Iterable[Question], at_once: int) -> int:
    """Ask each as soon as fewer than ``at_once`` wait for their answers; how many there were.

    Raises BenchmarkError where one is answered with an error, or nothing comes any more.
    """
    left = iter(questions)
    asked = answered = 0
    tail = b""
    with Connection(nats) as connection:
        connection.subscribe(INBOX, 1)
        while True:
            for question in islice(left, at_once - (asked - answered)):
                connection.send(_lines(question))
                asked += 1
            if answered == asked:
                return answered
            try:
                data = tail + connection.receive()
            except TimeoutError:
                raise BenchmarkError(f"{answered} of {asked} requests were answered") from None
            if b'"error"' in data or b"HMSG " in data:
                raise BenchmarkError(repr(data[-300:]))
            answered += data.count(TYPE)
            tail = data[-len(TYPE) + 1 :]


def _lines(question: Question) -> bytes:
    head = f"PUB {PREFIX}{question.verb} {INBOX} {len(question.body)}\r\n"
    return head.encode() + question.body + b"\r\n"
