"""``docs/apis.md``: the APIs of a node, out of the table of Kafka's API keys."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from compatibility.api_versions.differences import KAFKA_VERSION, Difference, Versions, differences
from streamlog.wire import registry
from streamlog.wire.registry import APIS, Api

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = ROOT / "docs" / "apis.md"

INTERNAL: Final = {
    registry.VOTE,
    registry.BEGIN_QUORUM_EPOCH,
    registry.END_QUORUM_EPOCH,
    registry.ENVELOPE,
    registry.FETCH_SNAPSHOT,
    registry.WRITE_TXN_MARKERS,
}

HEAD: Final = """\
# APIs

<!-- Made of streamlog/wire/registry.py and compatibility/api_versions by `python -m documentation`; `make lint`
compares. -->

A node speaks three protocols. [Security](security.md#authorization) says which right each request
needs, and [clients](compatibility.md) which programs were tried.

## Kafka

Both ends of a range of versions are included. A request of another API or version is refused with
`UNSUPPORTED_VERSION`.

"""

BESIDE: Final = f"""
Requests of Produce 0 to 2 and of SaslHandshake 0 are refused.

### Beside a Kafka broker

What differs from the APIs and versions that a broker of Kafka {KAFKA_VERSION} lists. `python -m
compatibility.api_versions HOST:PORT` compares a running node. A client that needs an API that is not listed reports
that at once, and sends no request.
"""

TAIL: Final = """\

## JetStream's management API

Requests go to `$JS.<domain>.API.<verb>` over NATS; the domain is `streamlog` by default.

| verb | |
|---|---|
| `INFO` | the account: streams, messages, bytes |
| `STREAM.CREATE.<stream>`, `STREAM.UPDATE.<stream>`, `STREAM.DELETE.<stream>` | [settings of a stream](streams.md) |
| `STREAM.INFO.<stream>`, `STREAM.NAMES`, `STREAM.LIST` | state and settings of streams |
| `STREAM.PURGE.<stream>`, `STREAM.MSG.DELETE.<stream>` | remove messages ([erasure](erasure.md)) |
| `STREAM.SNAPSHOT.<stream>`, `STREAM.RESTORE.<stream>` | [a backup of one stream](snapshots.md), and back |
| `STREAM.MSG.GET.<stream>`, `DIRECT.GET.<stream>` | read [single messages](subjects.md) |
| `STREAM.LEADER.STEPDOWN.<stream>`, `STREAM.PEER.REMOVE.<stream>`, `META.LEADER.STEPDOWN` | move leaders and replicas |
| `CONSUMER.CREATE`, `CONSUMER.DURABLE.CREATE`, `CONSUMER.INFO`, `CONSUMER.DELETE` | [consumers](consumers.md) |
| `CONSUMER.PAUSE`, `CONSUMER.UNPIN`, `CONSUMER.RESET` | change how a consumer goes on |
| `CONSUMER.NAMES`, `CONSUMER.LIST` | consumers of a stream |

## HTTP

| path | |
|---|---|
| `/` | [the console](console.md) |
| `/metrics`, `/metrics/partitions` | [metrics](metrics.md) of the node, and of its partitions |
| `/healthz`, `/readyz` | liveness and readiness; not ready is 503 with the reasons |
| `/api/v1` | [the JSON API](http-api.md) |
| other paths of `/api` | [JSON for the console](console.md#as-json); its form may change with any release |
"""


def page() -> str:
    """The whole page."""
    return "\n".join((HEAD + "\n".join(_table()), BESIDE, *_differences(), TAIL))


def _differences() -> Iterator[str]:
    node = {api.key: Versions(api.version_min, api.version_max) for api in APIS.values()}
    by_reason: dict[str, list[Difference]] = {}
    for it in differences(node, {api.key: api.name for api in APIS.values()}):
        by_reason.setdefault(it.reason, []).append(it)
    yield f"| key, API | Kafka {KAFKA_VERSION} | here | why |"
    yield "|---|---|---|---|"
    for reason, some in by_reason.items():
        names = "<br>".join(f"{it.key} {it.name}" for it in some)
        theirs = "<br>".join(str(it.kafka or "-") for it in some)
        ours = "<br>".join(str(it.node or "-") for it in some)
        yield f"| {names} | {theirs} | {ours} | {reason} |"


def _table() -> Iterator[str]:
    yield "| key | API | versions | |"
    yield "|--:|---|---|---|"
    for api in sorted(APIS.values()):
        yield f"| {api.key} | {api.name} | {_versions(api)} | {_users(api)} |"


def _versions(api: Api) -> str:
    return (
        f"{api.version_min} to {api.version_max}"
        if api.version_max > api.version_min
        else str(api.version_min)
    )


def _users(api: Api) -> str:
    return "between nodes" if api.key in INTERNAL else ""
