"""How fast the last message of a subject is found, among a million subjects of one message each."""

import json
import random
import time
from collections.abc import Iterator
from typing import Final

from benchmarks.asking import PREFIX, Question, ask_all
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
        first = question(0)
        with Connection(side.nats) as connection:
            answer = connection.request(PREFIX + first.verb, first.body)
        first_s = time.perf_counter() - started
        if "message" not in answer:
            raise BenchmarkError(f"{side.name}: {answer}")
        return {"lookups_s": ask(side, count), "first_s": first_s}
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


def ask(side: Side, count: int) -> float:
    """Lookups a second, a fixed number of them at a time."""
    started = time.perf_counter()
    found = ask_all(side.nats, _questions(count, started + ASKING_S), ASKED_AT_ONCE)
    return found / (time.perf_counter() - started)


def _questions(count: int, end_s: float) -> Iterator[Question]:
    chosen = random.Random(SEED)
    while time.perf_counter() < end_s:
        yield question(chosen.randrange(count))


def question(number: int) -> Question:
    """The last message of that subject."""
    body = json.dumps({"last_by_subj": f"bench.{number % 1000}.{number}"}).encode()
    return Question(f"STREAM.MSG.GET.{STREAM}", body)


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
                (Target(RATE, 0.5),),
            ),
        ),
    ),
)
