"""The cases, in the order of the table. The first variant of each is its yardstick."""

import subprocess
import sys
from collections.abc import Callable
from typing import Final

from benchmarks import machine
from benchmarks.case import Case, Measurement, Metric, Target, Variant
from benchmarks.processes import cpu_seconds, run_client
from benchmarks.side import (
    STREAM,
    Side,
    Sides,
    create_push_consumer,
    create_stream,
    delete_consumer,
    delete_stream,
)

RATE = Metric("rate", "records/s")
MEGABYTES = Metric("mb_per_s", "MB/s")
P50 = Metric("p50_ms", "ms, p50", digits=2, lower_is_better=True)
P99 = Metric("p99_ms", "ms, p99", digits=2, lower_is_better=True)

COUNTS: Final = {100: 800_000, 1024: 400_000}
"""Messages of one run, by size: a few seconds each."""
ALWAYS: Final = "JetStream, sync_interval: always"
TUNED: Final = "JetStream, its nats-server set up as ours"
ALWAYS_SHARE: Final = 0.02
"""``sync_interval: always`` is so much slower that a small part of the messages says it."""
PULL: Final = "JetStream, pull consumer, nats-py"
PULL_SHARE: Final = 0.2
LATENCY_COUNT: Final = 50_000
DELIVER_SUBJECT: Final = "deliver.push"


def measured(sides: Sides, side: Side, module: str, *arguments: str) -> Measurement:
    """Run a client and add what the servers' processors did for it."""
    machine.settle(sides.directory)
    before = cpu_seconds(side.pids)
    result = run_client(module, *arguments)
    used = cpu_seconds(side.pids) - before
    return {**result, "server_us": 1e6 * used / result["messages"]}


def publishing(
    mode: str,
    side_of: Callable[[Sides], Side],
    size: int,
    *,
    sync: str | None = None,
    share: float = 1.0,
    count: int | None = None,
    more: tuple[str, ...] = (),
) -> Callable[[Sides, float], Measurement]:
    """A run of the publisher into a fresh stream."""

    def run(sides: Sides, scale: float) -> Measurement:
        side = side_of(sides)
        create_stream(side, sync=sync)
        messages = int((count or COUNTS[size]) * share * scale)
        arguments = ["--nats", side.nats, "--stream", STREAM, "--count", str(messages), *more]
        try:
            return measured(sides, side, "publisher", mode, *arguments, "--size", str(size))
        finally:
            delete_stream(side)

    return run


def routing(size: int) -> Callable[[Sides, float], Measurement]:
    """Publishing to nobody through a nats-server: the router's limit and the program's."""

    def run(sides: Sides, scale: float) -> Measurement:
        side = sides.jetstream_tuned
        count = str(int(4 * COUNTS[size] * scale))
        arguments = ["--nats", side.nats, "--count", count, "--size", str(size)]
        return measured(sides, side, "publisher", "core", *arguments)

    return run


def round_trip(
    size: int, side_of: Callable[[Sides], Side]
) -> Callable[[Sides, float], Measurement]:
    """Publishing through a nats-server to a client that only acknowledges: the router's limit."""

    def run(sides: Sides, scale: float) -> Measurement:
        side = side_of(sides)
        command = [sys.executable, "-m", "benchmarks.responder", side.nats]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as responder:
            assert responder.stdout is not None
            responder.stdout.readline()
            count = str(int(COUNTS[size] * scale))
            arguments = ["--nats", side.nats, "--count", count, "--size", str(size)]
            try:
                return measured(sides, side, "publisher", "acked", *arguments)
            finally:
                responder.terminate()

    return run


def mirroring(size: int) -> Callable[[Sides, float], Measurement]:
    """Publishing to a server that only acknowledges: the program's limit."""

    def run(_: Sides, scale: float) -> Measurement:
        command = [sys.executable, "-m", "benchmarks.mirror"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as mirror:
            assert mirror.stdout is not None
            address = f"127.0.0.1:{mirror.stdout.readline().strip()}"
            count = str(int(4 * COUNTS[size] * scale))
            arguments = ["--nats", address, "--count", count, "--size", str(size)]
            return run_client("publisher", "acked", *arguments)

    return run


def _jetstream(sides: Sides) -> Side:
    return sides.jetstream


def _jetstream_tuned(sides: Sides) -> Side:
    return sides.jetstream_tuned


def _jetstream_always(sides: Sides) -> Side:
    return sides.jetstream_always


def _streamlog(sides: Sides) -> Side:
    return sides.streamlog


def limit_case(size: int) -> Case[Sides]:
    variants = (
        Variant("a mirror that acks everything", mirroring(size)),
        Variant("nats-server, nobody listens", routing(size)),
        Variant("nats-server, one listener acks everything", round_trip(size, _jetstream)),
        Variant("the same, set up as ours", round_trip(size, _jetstream_tuned)),
    )
    return Case(f"limits-{size}", f"Nothing stored, {_named(size)}", (RATE,), variants)


def acked_case(size: int) -> Case[Sides]:
    variants = (
        Variant("JetStream", publishing("acked", _jetstream, size)),
        Variant(
            "streamlog, sync=os",
            publishing("acked", _streamlog, size, sync="os"),
            (Target(RATE, 2.0),),
        ),
        Variant(
            "streamlog, sync=commit",
            publishing("acked", _streamlog, size, sync="commit"),
            (Target(RATE, 1.7), Target(RATE, 10.0, beside=ALWAYS)),
        ),
        Variant(TUNED, publishing("acked", _jetstream_tuned, size)),
        Variant(ALWAYS, publishing("acked", _jetstream_always, size, share=ALWAYS_SHARE)),
    )
    return Case(f"acked-{size}", f"Publish, every message acked, {_named(size)}", (RATE,), variants)


def unacked_case(size: int, mode: str, title: str, targets: tuple[Target, ...] = ()) -> Case[Sides]:
    def ours(sync: str) -> Variant[Sides]:
        run = publishing(mode, _streamlog, size, sync=sync)
        return Variant(f"streamlog, sync={sync}", run, targets)

    variants = (
        Variant("JetStream", publishing(mode, _jetstream, size)),
        ours("os"),
        ours("commit"),
        Variant(TUNED, publishing(mode, _jetstream_tuned, size)),
    )
    return Case(f"{mode}-{size}", f"{title}, {_named(size)}", (RATE,), variants)


def latency_case(size: int) -> Case[Sides]:
    def run(side_of: Callable[[Sides], Side], sync: str | None) -> Callable[..., Measurement]:
        return publishing("latency", side_of, size, sync=sync, count=LATENCY_COUNT)

    variants = (
        Variant("JetStream", run(_jetstream, None)),
        Variant("streamlog, sync=os", run(_streamlog, "os"), (Target(P50, 1.0), Target(P99, 1.0))),
        Variant("streamlog, sync=commit", run(_streamlog, "commit")),
        Variant(TUNED, run(_jetstream_tuned, None)),
    )
    title = f"Ack latency at 10,000 records/s, {_named(size)}"
    return Case("latency", title, (P50, P99), variants)


def consumer_case(size: int) -> Case[Sides]:
    """Both sides hold the same records; each reader reads them from the first."""

    def prepare(sides: Sides, scale: float) -> None:
        for side in (sides.jetstream, sides.streamlog):
            create_stream(side)
            arguments = ["--nats", side.nats, "--stream", STREAM, "--count", count(scale)]
            run_client("publisher", "acked", *arguments, "--size", str(size))

    def clear(sides: Sides) -> None:
        for side in (sides.jetstream, sides.streamlog):
            delete_stream(side)

    def read(sides: Sides, side: Side, mode: str, *arguments: str) -> Measurement:
        return measured(sides, side, "consumer", mode, *arguments, "--size", str(size))

    def count(scale: float) -> str:
        return str(int(COUNTS[size] * scale))

    def push(sides: Sides, scale: float) -> Measurement:
        side = sides.jetstream
        create_push_consumer(side, DELIVER_SUBJECT)
        source = ["--server", side.nats, "--source", DELIVER_SUBJECT]
        try:
            return read(sides, side, "push", *source, "--count", count(scale))
        finally:
            delete_consumer(side, "push")

    def pull(sides: Sides, scale: float) -> Measurement:
        side = sides.jetstream
        source = ["--server", side.nats, "--source", STREAM]
        try:
            return read(sides, side, "pull", *source, "--count", count(PULL_SHARE * scale))
        finally:
            delete_consumer(side, "pull")

    def kafka(mode: str) -> Callable[[Sides, float], Measurement]:
        def run(sides: Sides, scale: float) -> Measurement:
            side = sides.streamlog
            source = ["--server", side.kafka, "--source", STREAM]
            return read(sides, side, mode, *source, "--count", count(scale))

        return run

    variants = (
        Variant("JetStream, push consumer, raw socket", push),
        Variant(PULL, pull),
        Variant(
            "streamlog, one confluent-kafka consumer",
            kafka("kafka"),
            (Target(RATE, 2.0), Target(RATE, 20.0, beside=PULL)),
        ),
        Variant("the same, all its settings as they come", kafka("kafka-defaults")),
    )
    title = f"Consume from the start, {_named(size)}"
    return Case(f"consume-{size}", title, (MEGABYTES, RATE), variants, prepare, clear)


def _named(size: int) -> str:
    return "1 KiB" if size == 1024 else f"{size} B"


FLAT_OUT = "Publish without acks, flat out"
FENCED = "Publish, one ack for 200 messages"

CASES: Final = (
    limit_case(100),
    limit_case(1024),
    acked_case(100),
    acked_case(1024),
    unacked_case(100, "unacked", FLAT_OUT, (Target(RATE, 1.5),)),
    unacked_case(1024, "unacked", FLAT_OUT, (Target(RATE, 1.5),)),
    unacked_case(100, "fenced", FENCED),
    unacked_case(1024, "fenced", FENCED),
    latency_case(100),
    consumer_case(1024),
)
