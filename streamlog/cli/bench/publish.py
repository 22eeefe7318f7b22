import asyncio
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TimeRemainingColumn

from streamlog.cli.bench.writing import (
    Size,
    Subject,
    announce,
    check_subject,
    print_figures,
    say_how_to_remove,
    silent,
)
from streamlog.cli.options import options as o
from streamlog.cli.options.nats_options import nats_settings
from streamlog.cli.output import print_json, say


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
