"""How fast the last message of a subject is found, among a million subjects of one message each."""

import json
import random
import time
from typing import Final

from benchmarks.case import Case, Measurement, Metric, Target, Variant
from benchmarks.connection import BenchmarkError, Connection
from benchmarks.side import STREAM, Side, Sides, create_stream, delete_stream

SUBJECTS: Final = 1_000_000
PAYLOAD: Final = bytes(100)
PUBLISHED_AT_ONCE: Final = 5_000
ASKED_AT_ONCE: Final = 32
ASKING_S: Final = 3.0
SEED: Final = 7

RATE = Metric("lookups_s", "lookups/s")
FIRST = Metric("first_s", "s for the first", digits=2, lower_is_better=True)


def run(side: Side, scale: float) -> Measurement:
    """Publish, ask once, then ask for random ones, some at a time."""
    count = max(1_000, int(SUBJECTS * scale))
    create_stream(side)
    try:
        with Connection(side.nats) as connection:
            connection.subscribe("_INBOX.p", 1)
            fill(connection, count)
        started = time.perf_counter()
        with Connection(side.nats) as connection:
            answer = connection.request(*question(0))
        first_s = time.perf_counter() - started
        if "message" not in answer:
            raise BenchmarkError(f"{side.name}: {answer}")
        with Connection(side.nats) as connection:
            connection.subscribe("_INBOX.q", 1)
            return {"lookups_s": ask(connection, count), "first_s": first_s}
    finally:
        delete_stream(side)


def fill(connection: Connection, count: int) -> None:
    """A message for each subject, acknowledged."""
    for start in range(0, count, PUBLISHED_AT_ONCE):
        numbers = range(start, min(start + PUBLISHED_AT_ONCE, count))
        connection.send(
            b"".join(
                b"PUB bench.%d.%d _INBOX.p %d\r\n%b\r\n" % (it % 1000, it, len(PAYLOAD), PAYLOAD)
                for it in numbers
            )
        )
        _await(connection, b'"seq"', len(numbers))


def ask(connection: Connection, count: int) -> float:
    """Lookups a second, a fixed number of them at a time."""
    chosen, found = random.Random(SEED), 0
    started = time.perf_counter()
    while (passed_s := time.perf_counter() - started) < ASKING_S:
        for _ in range(ASKED_AT_ONCE):
            subject, body = question(chosen.randrange(count))
            head = f"PUB {subject} _INBOX.q {len(body)}\r\n".encode()
            connection.send(head + body + b"\r\n")
        _await(connection, b'"message"', ASKED_AT_ONCE)
        found += ASKED_AT_ONCE
    return found / passed_s


def question(number: int) -> tuple[str, bytes]:
    """Where to ask, and what."""
    body = json.dumps({"last_by_subj": f"bench.{number % 1000}.{number}"}).encode()
    return f"$JS.API.STREAM.MSG.GET.{STREAM}", body


def _await(connection: Connection, word: bytes, count: int) -> None:
    """So many answers with that word in them."""
    tail, seen = b"", 0
    while seen < count:
        data = tail + connection.receive()
        if b'"error"' in data:
            raise BenchmarkError(repr(data[-300:]))
        seen += data.count(word)
        tail = data[-len(word) + 1 :]


CASES: Final[tuple[Case[Sides], ...]] = (
    Case(
        "subjects",
        "The last message of a subject, of a million subjects",
        (RATE, FIRST),
        (
            Variant("JetStream", lambda sides, scale: run(sides.jetstream, scale)),
            Variant(
                "streamlog",
                lambda sides, scale: run(sides.streamlog, scale),
                (Target(RATE, 0.1),),
            ),
        ),
    ),
)
