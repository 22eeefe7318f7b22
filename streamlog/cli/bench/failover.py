import asyncio
import signal
from typing import TYPE_CHECKING, Annotated

import typer

from streamlog.cli.bench.writing import (
    Size,
    Subject,
    announce,
    check_subject,
    print_figures,
    silent,
)
from streamlog.cli.options import options as o
from streamlog.cli.options.nats_options import nats_settings
from streamlog.cli.output import print_json, say

if TYPE_CHECKING:
    from streamlog.nats_tools.retries import Gap, RetryVerdict

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
