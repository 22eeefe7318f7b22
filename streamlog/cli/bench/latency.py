import asyncio
import selectors
from typing import Annotated

import typer

from streamlog.cli.bench.percentiles import percentiles
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
from streamlog.errors import ConfigError


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
    a stall counts for every message that it delays. It writes into the
    stream; make one for it:

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
