"""A hundred thousand durable consumers on one node: how fast they come and are listed, what they cost while nobody uses
them, and how soon they are back after kill -9. Nothing is between client and server: the node has its NATS port.
"""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from benchmarks.asking import PREFIX, Question, ask_all
from benchmarks.case import Case, Measurement, Metric, Target, Variant
from benchmarks.connection import VOID, BenchmarkError, Connection
from benchmarks.processes import cpu_seconds, resident_mib
from benchmarks.side import STREAM, SUBJECTS, JetStream, Port, Sides

NAME: Final = "consumers"
CONSUMERS: Final = 100_000
ASKED_AT_ONCE: Final = 256
SETTLE_S: Final = 3.0
IDLE_S: Final = 8.0
BACK_TIMEOUT_S: Final = 300.0

CREATED = Metric("created_s", "created/s")
LISTED = Metric("listed_s", "s to list all names", digits=2, lower_is_better=True)
IDLE = Metric("idle_percent", "% of a core, idle", digits=2, lower_is_better=True)
MEMORY = Metric("consumer_kib", "KiB of memory each", digits=1, lower_is_better=True)
BACK = Metric("back_s", "s until they are back after kill -9", digits=2, lower_is_better=True)


class RestartedJetStream(JetStream):
    """Killed, and started again in its folder."""

    def restart(self) -> None:
        self._process.kill()
        self._begin()


class RestartedPort(Port):
    """Killed, and started again in its folder."""

    def restart(self) -> None:
        self._dev.kill()
        self._dev.ready_file.unlink(missing_ok=True)
        self._begin()


def living(
    create: Callable[[Path], RestartedJetStream | RestartedPort], consumers: int
) -> Callable[[Sides, float], Measurement]:
    """On a server of its own."""

    def run(sides: Sides, scale: float) -> Measurement:
        side, count = sides.own(NAME, create), max(100, int(consumers * scale))
        try:
            _create_stream(side, count)
            before_mib = resident_mib(side.pids)
            started = time.perf_counter()
            ask_all(side.nats, creations(count), ASKED_AT_ONCE)
            created_s = time.perf_counter() - started
            time.sleep(SETTLE_S)
            started, before_s = time.perf_counter(), cpu_seconds(side.pids)
            time.sleep(IDLE_S)
            idle = (cpu_seconds(side.pids) - before_s) / (time.perf_counter() - started)
            memory_kib = (resident_mib(side.pids) - before_mib) * 1024 / count
            started = time.perf_counter()
            _list_all(side.nats, count)
            listed_s = time.perf_counter() - started
            started = time.perf_counter()
            side.restart()
            _wait_for_all(side, count)
            back_s = time.perf_counter() - started
        finally:
            sides.drop(NAME)
        return {
            "created_s": count / created_s,
            "listed_s": listed_s,
            "idle_percent": 100 * idle,
            "consumer_kib": memory_kib,
            "back_s": back_s,
        }

    return run


def _create_stream(side: RestartedJetStream | RestartedPort, count: int) -> None:
    """nats-server 2.15 allows 1,000 consumers, unless the stream names another number; a node's streams have none."""
    config: dict[str, Any] = {"name": STREAM, "subjects": [SUBJECTS], "storage": "file"}
    if isinstance(side, JetStream):
        config["max_consumers"] = count
    with Connection(side.nats) as connection:
        answer = _ask(connection, f"STREAM.CREATE.{STREAM}", config)
    if "error" in answer:
        raise BenchmarkError(f"{side.name}: {answer['error']}")


def creations(count: int) -> Iterator[Question]:
    """Of so many durable pull consumers: c0, c1, ..."""
    for number in range(count):
        config = {"durable_name": f"c{number}", "ack_policy": "explicit"}
        body = json.dumps({"stream_name": STREAM, "config": config}).encode()
        yield Question(f"CONSUMER.DURABLE.CREATE.{STREAM}.c{number}", body)


def _list_all(nats: str, count: int) -> None:
    """Page after page."""
    found = 0
    with Connection(nats) as connection:
        while found < count:
            page = _ask(connection, f"CONSUMER.NAMES.{STREAM}", {"offset": found})
            if page.get("total") != count or not page.get("consumers"):
                raise BenchmarkError(f"{found} of {count} consumers are listed")
            found += len(page["consumers"])


def _wait_for_all(side: RestartedJetStream | RestartedPort, count: int) -> None:
    deadline = time.monotonic() + BACK_TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            with Connection(side.nats) as connection:
                page = _ask(connection, f"CONSUMER.NAMES.{STREAM}", {"offset": 0})
            if page.get("total") == count:
                return
        except (*VOID, OSError):  # nobody answers yet
            pass
        time.sleep(0.05)
    raise BenchmarkError(f"{side.name}: the consumers are not back")


def _ask(connection: Connection, verb: str, body: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = connection.request(PREFIX + verb, json.dumps(body).encode())
    return answer


def case(consumers: int) -> Case[Sides]:
    metrics = (CREATED, IDLE, MEMORY, LISTED, BACK)
    return Case(
        f"consumers-{consumers}",
        f"{consumers:,} durable consumers of one stream",
        metrics,
        (
            Variant("JetStream", living(RestartedJetStream, consumers)),
            Variant(
                "streamlog's port",
                living(RestartedPort, consumers),
                (Target(CREATED, 2_000, absolute=True), Target(IDLE, 5.0, absolute=True)),
            ),
        ),
        rounds=1,
    )


CASES: Final[tuple[Case[Sides], ...]] = (case(10_000), case(CONSUMERS))
