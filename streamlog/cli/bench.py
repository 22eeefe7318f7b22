"""``streamlog bench``: what a cluster of one's own can do.

Each command takes a cluster as it is and measures from outside, as any client would: ``publish``,
``latency`` and ``failover`` over NATS, ``consume`` over the socket API. Those that publish write
into the stream, and say so. The loops that must be fast, and that speak NATS, are in
``nats_tools``.
"""

import asyncio
import contextlib
import selectors
import signal
import time
from collections.abc import Iterable, Sequence
from math import ceil
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TimeRemainingColumn

from streamlog.cli.options import options as o
from streamlog.cli.options.connection_options import chosen_security
from streamlog.cli.options.names import StreamName
from streamlog.cli.options.nats_options import nats_settings
from streamlog.cli.output import print_json, say
from streamlog.errors import ConfigError, InvalidRequest

if TYPE_CHECKING:
    from streamlog.client.reader import PartitionReader
    from streamlog.nats_tools.retries import Gap, RetryVerdict


Subject = Annotated[
    str, typer.Argument(help="A NATS subject of the stream; best one of a stream made for this.")
]
Size = Annotated[int, typer.Option(min=0, metavar="BYTES", help="Of each message.")]


def check_subject(subject: str) -> None:
    """Raises ConfigError: what follows is written as bytes, so it must be one plain word."""
    tokens = subject.split(".")
    if not (subject.isprintable() and " " not in subject and all(tokens)) or {"*", ">"} & {*tokens}:
        remedy = "name one subject, without blanks and wildcards"
        raise ConfigError("SUBJECT", f"{subject!r} cannot be published to", remedy)


def announce(stream: str) -> None:
    """Said before the clock starts, and not on standard output: it is no figure."""
    say(f"writing into stream {stream}", to_stderr=True)


def silent(_: str) -> None:
    """Nothing is said beside JSON."""


def print_figures(figures: Iterable[tuple[str, str]]) -> None:
    """Name and value, one a line; the values end under each other."""
    lines = list(figures)
    names = max(len(name) for name, _ in lines)
    values = max(len(value) for _, value in lines)
    for name, value in lines:
        say(f"  {name:<{names}}  {value:>{values}}")


def say_how_to_remove(stream: str, base_offset: int, last_offset: int) -> None:
    say(
        f"stream {stream} keeps what was written, as offsets {base_offset} to {last_offset};"
        f" `streamlog stream purge {stream}` removes that and all else in it"
    )


SHOWN: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999, "max": 1.0}


def percentiles(values: Iterable[float]) -> dict[str, float]:
    """By nearest rank: each is one of the values, so many of which are not above it."""
    ordered = sorted(values)
    if not ordered:
        return {}
    return {
        name: ordered[max(0, ceil(round(share * len(ordered), 6)) - 1)]
        for name, share in SHOWN.items()
    }


def publish(
    subject: Subject,
    size: Size = 100,
    count: Annotated[int, typer.Option(min=1, help="So many messages.")] = 1_000_000,
    in_flight: Annotated[
        int, typer.Option(min=1, help="So many may be unacknowledged, of all connections.")
    ] = 4_000,
    connections: Annotated[int, typer.Option(min=1, max=1000, help="NATS connections.")] = 1,
    acks: Annotated[
        bool, typer.Option("--acks/--no-acks", help="Every message acknowledged, or but the last.")
    ] = True,
    nats: o.NatsUrl = o.NATS_URL,
    creds: o.Credentials = None,
    as_json: o.Json = False,
) -> None:
    """Publish as fast as the cluster takes it: records/s, MB/s.

    One message more goes first, which is not measured: its ack names the stream.
    The first refusal ends it. It writes into the stream; make one for it:

    \b
      streamlog stream add bench
      streamlog bench publish bench
      streamlog bench publish bench --size 1024 --count 200000 --connections 2
      streamlog stream rm bench
    """
    from streamlog.nats_tools.burst import BurstLoad, burst

    check_subject(subject)
    columns = (BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    shown = console.is_terminal and not as_json
    with Progress(*columns, console=console, transient=True, disable=not shown) as progress:
        task = progress.add_task(subject, total=count)
        load = BurstLoad(subject, size, count, in_flight, acks)
        done = asyncio.run(
            burst(
                nats_settings(nats, creds),
                load,
                connections=connections,
                begun=silent if as_json else announce,
                progress=lambda sent: progress.advance(task, sent),
            )
        )
    rate = done.messages / done.seconds
    if as_json:
        rates = {"records_per_s": rate, "mb_per_s": rate * size / 1e6}
        print_json({**done._asdict(), "size_bytes": size, **rates})
        return
    say(f"{done.messages:,} messages of {size:,} bytes to {subject}")
    print_figures(
        (
            ("records/s", f"{rate:,.0f}"),
            ("MB/s", f"{rate * size / 1e6:,.1f}"),
            ("seconds", f"{done.seconds:.3f}"),
            ("acks", f"{done.acks:,}"),
            ("stored", f"{done.stored:,}"),
        )
    )
    say_how_to_remove(done.stream, done.base_offset, done.base_offset + done.stored)


def latency(
    subject: Subject,
    rate: Annotated[int, typer.Option(min=1, max=1_000_000, help="Messages a second.")] = 10_000,
    seconds: Annotated[float, typer.Option(min=0.001, help="How long.")] = 10.0,
    size: Size = 100,
    nats: o.NatsUrl = o.NATS_URL,
    creds: o.Credentials = None,
    as_json: o.Json = False,
) -> None:
    """Publish at a fixed rate, whatever comes back: how long an ack takes.

    A message's clock starts when it was due, not when it could be sent, so
    a stall counts for every message that it delays. One message more goes
    first, which is not measured. It writes into the stream; make one for it:

    \b
      streamlog stream add bench
      streamlog bench latency bench
      streamlog bench latency bench --rate 50000 --seconds 30
      streamlog stream rm bench
    """
    from streamlog.nats_tools.burst import BurstLoad
    from streamlog.nats_tools.fixed_schedule import MESSAGES_MAX, paced

    check_subject(subject)
    count = max(1, round(rate * seconds))
    if count > MESSAGES_MAX:
        remedy = f"ask for {MESSAGES_MAX:,} at most"
        raise ConfigError("--seconds", f"{count:,} messages are too many to keep", remedy)
    load = BurstLoad(subject, size, count, in_flight=count)
    begun = silent if as_json else announce
    with asyncio.Runner(loop_factory=_precise_loop) as runner:
        done = runner.run(paced(nats_settings(nats, creds), load, rate, begun=begun))
    found = {name: 1000 * value for name, value in percentiles(done.latencies_s).items()}
    lag_ms = 1000 * done.send_lag_s
    if as_json:
        figures = {f"{name}_ms": value for name, value in found.items()}
        about = {"stream": done.stream, "messages": done.messages, "rate": rate, "size_bytes": size}
        print_json({**about, **figures, "send_lag_max_ms": lag_ms})
        return
    say(f"{done.messages:,} messages of {size:,} bytes to {subject}, {rate:,} a second")
    print_figures(
        (
            *((name, f"{value:,.2f} ms") for name, value in found.items()),
            ("sent too late", f"{lag_ms:,.2f} ms at most"),
        )
    )
    say_how_to_remove(done.stream, done.base_offset, done.base_offset + done.messages)


def _precise_loop() -> asyncio.AbstractEventLoop:
    """``select`` waits microseconds; epoll, and uvloop, round to milliseconds."""
    return asyncio.SelectorEventLoop(selectors.SelectSelector())


class Consumed(NamedTuple):
    """What was read."""

    partitions: int
    records: int
    size_bytes: int
    """Of whole batches, as they came: compressed where they are."""
    seconds: float


def consume(
    stream: StreamName,
    partition: Annotated[int | None, typer.Option(min=0, help="Only this one.")] = None,
    start: Annotated[
        str, typer.Option("--from", help="earliest, an offset, or a time (ISO 8601).")
    ] = "earliest",
    count: Annotated[
        int | None, typer.Option(min=1, help="Stop at the end of the batch with so many records.")
    ] = None,
    servers: o.Servers = o.SERVERS,
    as_json: o.Json = False,
) -> None:
    """Read what a stream holds now, over the socket API: MB/s, records/s.

    Batches are taken whole and their checksums are looked at, as any client
    does; records are not taken out of them. All partitions at once, unless
    one is named.

    \b
      streamlog bench consume orders
      streamlog bench consume orders --partition 0 --from 1000000
    """
    from streamlog.cli.options.position import parse_position
    from streamlog.client.cluster import Cluster
    from streamlog.client.reader import PartitionReader
    from streamlog.model import TopicPartition

    position = parse_position(start)

    async def consumed() -> Consumed:
        async with Cluster.at(servers, security=chosen_security()) as cluster:
            partitions = (await cluster.topic(stream)).partitions
            numbers = range(len(partitions)) if partition is None else (partition,)
            readers = [
                PartitionReader(cluster, TopicPartition(stream, n), position) for n in numbers
            ]
            return await _read(readers, count)

    done = asyncio.run(consumed())
    if not done.records:
        raise InvalidRequest(f"stream {stream!r} has no records from {start} on: nothing to read")
    rate, mb_rate = done.records / done.seconds, done.size_bytes / done.seconds / 1e6
    if as_json:
        rates = {"records_per_s": rate, "mb_per_s": mb_rate}
        print_json({"stream": stream, **done._asdict(), **rates})
        return
    say(f"{done.records:,} records of {stream}")
    print_figures(
        (
            ("MB/s", f"{mb_rate:,.1f}"),
            ("records/s", f"{rate:,.0f}"),
            ("seconds", f"{done.seconds:.3f}"),
            ("partitions", f"{done.partitions:,}"),
            ("MB", f"{done.size_bytes / 1e6:,.1f}"),
        )
    )


async def _read(readers: "Sequence[PartitionReader]", count: int | None) -> Consumed:
    """All at once; the clock stops with the last batch, not with the last answer."""
    records = size_bytes = 0
    began = ended = time.perf_counter()

    async def read(reader: "PartitionReader") -> None:
        nonlocal records, size_bytes, ended
        async with reader, contextlib.aclosing(reader.batches()) as batches:
            async for header, batch in batches:
                if count is not None and records >= count:
                    return
                records += header.record_count
                size_bytes += len(batch)
                ended = time.perf_counter()

    async with asyncio.TaskGroup() as tasks:
        for reader in readers:
            tasks.create_task(read(reader))
    return Consumed(len(readers), records, size_bytes, ended - began)


GAP_S = 0.1


def failover(
    subject: Subject,
    seconds: Annotated[
        float, typer.Option(min=0.1, max=86_400, help="How long; Ctrl-C ends it early.")
    ] = 60.0,
    period_ms: Annotated[float, typer.Option(min=1, help="One message each so many.")] = 2.0,
    size: Size = 100,
    nats: o.NatsUrl = o.NATS_URL,
    creds: o.Credentials = None,
    as_json: o.Json = False,
) -> None:
    """Publish through whatever you do to the cluster: how long is nothing acknowledged?

    Each message has a Nats-Msg-Id and is published again until it is
    acknowledged. Every gap of more than 100 ms is told when it ends. The end
    tells the longest one, and whether an acknowledged message was lost or
    stored twice: then the exit code is 1. Kill a node meanwhile.

    \b
      streamlog stream add drill --replicas 3
      streamlog bench failover drill --seconds 120
      streamlog stream rm drill
    """
    check_subject(subject)
    gaps: list[Gap] = []

    def tell(gap: "Gap") -> None:
        gaps.append(gap)
        if not as_json:
            say(_told(gap), flush=True)

    async def published() -> "RetryVerdict":
        from streamlog.nats_tools.burst import BurstLoad
        from streamlog.nats_tools.steady import Steady

        steady = Steady(
            nats_settings(nats, creds),
            BurstLoad(subject, size, count=1, in_flight=1),
            period_s=period_ms / 1000,
            gap_s=GAP_S,
            begun=silent if as_json else announce,
        )
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, steady.stop)
        return await steady.run(seconds, tell)

    verdict = asyncio.run(published())
    harm = bool(verdict.lost or verdict.stored_twice or verdict.unanswered)
    if as_json:
        print_json({**verdict._asdict(), "gaps": [gap._asdict() for gap in gaps]})
    else:
        _print(verdict, len(gaps))
    if harm:
        raise typer.Exit(1)


def _told(gap: "Gap") -> str:
    line = f"at {gap.began_s:8.2f} s: nothing acknowledged for {1000 * gap.seconds:,.0f} ms"
    if gap.stalled_s > gap.seconds / 2:
        line += f" (this program did not run for {1000 * gap.stalled_s:,.0f} ms of them)"
    return line


def _print(verdict: "RetryVerdict", gaps: int) -> None:
    say(f"{verdict.published:,} messages published")
    print_figures(
        (
            (f"gaps of more than {1000 * GAP_S:.0f} ms", f"{gaps:,}"),
            ("longest gap", f"{1000 * verdict.longest_gap_s:,.0f} ms"),
            ("acknowledged", f"{verdict.acknowledged:,}"),
            ("published again", f"{verdict.retries:,}"),
            ("known as duplicates", f"{verdict.duplicates:,}"),
            ("without an ack", f"{verdict.unanswered:,}"),
            ("stored twice", f"{verdict.stored_twice:,}"),
            ("lost after an ack", f"{verdict.lost:,}"),
        )
    )


app = typer.Typer(help="Measure your own cluster.", no_args_is_help=True)

for command in (publish, latency, consume, failover):
    app.command()(command)
