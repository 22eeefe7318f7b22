"""How fast the management API answers, and how fast it makes, lists and removes many streams."""

import json
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from benchmarks.asking import PREFIX, Question, ask_all
from benchmarks.case import Case, Measurement, Metric, Target, Variant
from benchmarks.connection import BenchmarkError, Connection
from benchmarks.side import JetStream, Side, Sides, Streamlog, create_streams

NAME: Final = "managed"
FEW: Final = 100
MANY: Final = 10_000
ASKED_AT_ONCE: Final = 32
ASKING_S: Final = 3.0
SEED: Final = 7

RATE = Metric("requests_s", "requests/s")
CREATED = Metric("created_s", "created/s")
LISTED = Metric("listed_s", "s to list all", digits=2, lower_is_better=True)
DELETED = Metric("deleted_s", "deleted/s")


def answering(side_of: Callable[[Sides], Side]) -> Callable[[Sides, float], Measurement]:
    """STREAM.INFO, a page of STREAM.NAMES and STREAM.MSG.GET in equal parts."""

    def run(sides: Sides, scale: float) -> Measurement:
        side = side_of(sides)
        create_streams(side, FEW, NAME)
        try:
            _publish_to_each(side, FEW)
            started = time.perf_counter()
            count = ask_all(side.nats, _mixed(FEW, started + ASKING_S * scale), ASKED_AT_ONCE)
            return {"requests_s": count / (time.perf_counter() - started)}
        finally:
            _delete_all(side, FEW)

    return run


def living(
    create: Callable[[Path], JetStream | Streamlog],
) -> Callable[[Sides, float], Measurement]:
    """On a server of its own: streams come, are listed, and go."""

    def run(sides: Sides, scale: float) -> Measurement:
        side, count = sides.own(NAME, create), int(MANY * scale)
        try:
            created_s = _timed(lambda: create_streams(side, count, NAME))
            listed_s = _timed(lambda: _list_all(side, count))
            deleted_s = _timed(lambda: _delete_all(side, count))
        finally:
            sides.drop(NAME)
        return {
            "created_s": count / created_s,
            "listed_s": listed_s,
            "deleted_s": count / deleted_s,
        }

    return run


def _mixed(count: int, end_s: float) -> Iterator[Question]:
    chosen = random.Random(SEED)
    while time.perf_counter() < end_s:
        yield Question(f"STREAM.INFO.{NAME}{chosen.randrange(count)}")
        yield Question("STREAM.NAMES", b'{"offset":0}')
        yield Question(f"STREAM.MSG.GET.{NAME}{chosen.randrange(count)}", b'{"seq":1}')


def _publish_to_each(side: Side, count: int) -> None:
    with Connection(side.nats) as connection:
        for number in range(count):
            answer = connection.request(f"{NAME}.{number}", bytes(100))
            if answer.get("seq") != 1:
                raise BenchmarkError(f"{side.name}: {answer}")


def _list_all(side: Side, count: int) -> None:
    """Page after page."""
    found = 0
    with Connection(side.nats) as connection:
        while found < count:
            body = json.dumps({"offset": found}).encode()
            page: dict[str, Any] = connection.request(f"{PREFIX}STREAM.LIST", body)
            if page.get("total") != count or not page.get("streams"):
                raise BenchmarkError(f"{side.name}: {found} of {count} streams are listed")
            found += len(page["streams"])


def _delete_all(side: Side, count: int) -> None:
    questions = (Question(f"STREAM.DELETE.{NAME}{number}") for number in range(count))
    ask_all(side.nats, questions, ASKED_AT_ONCE)


def _timed(call: Callable[[], None]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


CASES: Final[tuple[Case[Sides], ...]] = (
    Case(
        "management",
        "Management requests: INFO, a page of NAMES, MSG.GET, of 100 streams",
        (RATE,),
        (
            Variant("JetStream", answering(lambda sides: sides.jetstream)),
            Variant("streamlog", answering(lambda sides: sides.streamlog), (Target(RATE, 0.5),)),
        ),
    ),
    Case(
        "management-streams",
        "10,000 streams come, are listed, and go",
        (CREATED, LISTED, DELETED),
        (
            Variant("JetStream", living(JetStream)),
            Variant("streamlog", living(Streamlog), (Target(LISTED, 1.0),)),
        ),
        rounds=3,
    ),
)
