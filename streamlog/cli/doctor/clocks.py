"""Clocks: of this machine beside the nodes' and the nats-server's, by what they say of the time."""

import asyncio
import http.client
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from streamlog.cli.node.node_http import NodeHttpClient
from streamlog.condition import CRITICAL, WARNING, Severity
from streamlog.errors import ConfigError
from streamlog.findings import SETTING_WRONG, Finding
from streamlog.metadata.nodes.node_condition import CLOCK_OFF

if TYPE_CHECKING:
    from streamlog.config import Settings

AREA: Final = "clocks"
SKEW_S: Final = 0.5
SKEW_FAILED_S: Final = 5.0
ANSWER_BYTES_MAX: Final = 16 * 1024 * 1024
_OPENER: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""A proxy would add its own time to the way."""

_NO_TIME: Final = (
    OSError, http.client.HTTPException,
    ValueError, KeyError, TypeError, OverflowError, RecursionError,
)  # fmt: skip
"""What a request to a server that is no node, or no nats-server, leads to."""

Read = Callable[[object], float]
"""The time in an answer."""


async def examine(
    settings: "Settings", nodes: list[str], monitor: str | None, timeout_s: float
) -> AsyncIterator[Finding]:
    """``nodes``: the HTTP addresses of nodes, none: of this one; ``monitor``: of nats-server's
    monitoring port.
    """
    try:
        own_node = NodeHttpClient(settings)
    except ConfigError as error:
        yield Finding(AREA, "skipped", f"{error.key}: {error.problem}", error.remedy)
        return
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=own_node.tls)
    )
    for address in nodes or [own_node.url]:
        url = address if "://" in address else f"{own_node.scheme}://{address}"
        yield await asyncio.to_thread(_node, opener, url, timeout_s)
    if monitor is None:
        yield Finding(
            AREA,
            "skipped",
            "the clock of nats-server is not compared: its clients are not told the time",
            "name its monitoring port by --nats-monitor http://HOST:8222",
        )
    else:
        yield await asyncio.to_thread(_nats, monitor, timeout_s)


def _node(opener: urllib.request.OpenerDirector, url: str, timeout_s: float) -> Finding:
    who = f"node at {url.partition('://')[2]}"
    return _compared(opener, who, f"{url.rstrip('/')}/healthz", timeout_s, node_time_s)


def _nats(monitor: str, timeout_s: float) -> Finding:
    url = f"{monitor.rstrip('/')}/varz"
    place = urllib.parse.urlsplit(url).hostname or "?"
    return _compared(_OPENER, f"nats-server at {place}", url, timeout_s, nats_time_s)


def node_time_s(answer: object) -> float:
    """Of ``/healthz``, which every client may read."""
    return float(_fields(answer)["time_ms"]) / 1000


def nats_time_s(answer: object) -> float:
    """Of ``/varz``; Go writes nanoseconds, of which Python takes microseconds."""
    return datetime.fromisoformat(str(_fields(answer)["now"])).timestamp()


def _fields(answer: object) -> dict[str, Any]:
    if not isinstance(answer, dict):
        raise ValueError("the answer is not a JSON object")
    return answer


def _compared(
    opener: urllib.request.OpenerDirector, who: str, url: str, timeout_s: float, read: Read
) -> Finding:
    if not url.startswith(("http://", "https://")):
        said = f"{who}: no address of HTTP"
        return Finding.of(SETTING_WRONG, AREA, said, "write http://HOST:PORT")
    try:
        began = time.time()
        with opener.open(url, timeout=timeout_s) as answer:
            body = answer.read(ANSWER_BYTES_MAX)
        ended = time.time()
        theirs = read(json.loads(body))
    except urllib.error.HTTPError as error:
        with error:
            said = f"{who} answers {error.code}: its clock is not compared"
            return Finding(AREA, "skipped", said, "name the HTTP address of a node by --http")
    except _NO_TIME as error:
        said = f"{who} does not tell its time: {error}"
        return Finding(AREA, "skipped", said, "start it, or name its HTTP address by --http")
    return judged(who, theirs - (began + ended) / 2, ended - began)


def judged(who: str, skew_s: float, took_s: float) -> Finding:
    """``skew_s``: how far theirs is ahead of ours, known to half of ``took_s``."""
    ahead = "ahead of" if skew_s > 0 else "behind"
    said = f"the clock of {who} is {abs(skew_s) * 1000:.0f} ms {ahead} this machine's"
    said += f" (known to {took_s * 500:.0f} ms)"
    measured = {"skew_seconds": skew_s, "uncertainty_seconds": took_s / 2}
    surely_s = abs(skew_s) - took_s / 2
    if surely_s > SKEW_S:
        remedy = "have chrony or systemd-timesyncd run on both: chronyc tracking, timedatectl"
        severity: Severity = CRITICAL if surely_s > SKEW_FAILED_S else WARNING
        return Finding.of(CLOCK_OFF, AREA, said, remedy, severity=severity, measured=measured)
    return Finding(AREA, "ok", said, "", measured)
