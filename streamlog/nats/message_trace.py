"""Traces of messages, as nats-server 2.11 has them (ADR-41): what became of one message at this node. Pure.

A publisher asks for one by headers::

    Nats-Trace-Dest: <subject>     the trace is published there, as JSON
    Nats-Trace-Only: true          the message itself is neither stored nor delivered

The trace has one event for how the message came (``in``), one for the subject that its own stands for (``sm``),
one for each stream of this node that takes it (``js``), and one for each client and each link that it goes to
(``eg``). Rules:

- Other nodes and nats-servers make no trace of what comes from here. The event of a link has that as its
  error, and a message with ``Nats-Trace-Only`` is not sent over it.
- A stream's event says that the message was handed to it, not that it was stored: the ack says that.
- A destination that nothing can be published to makes no trace. One that the client may not publish to
  stops the message, too.
- ``Accept-Encoding`` is not honoured: a trace is never compressed.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Final, NamedTuple

from streamlog.nats.client_connection import ClientConnection
from streamlog.nats.leaf_connection import LeafConnection
from streamlog.nats.router import DeliveryTrace, Subscription

TRACE_DEST: Final = "Nats-Trace-Dest"
TRACE_ONLY: Final = "Nats-Trace-Only"
TRACE_DISABLED: Final = "trace disabled"
"""In place of a destination: another server has decided that there is no trace."""
_YES: Final = frozenset({"1", "true", "on"})

NO_ECHO: Final = "Not delivered because of no echo"
DENIED: Final = "Not delivered because subscription denies this subject"
LINK_WITHOUT_TRACES: Final = (
    "Message delivered but remote does not support message tracing "
    "so no trace event generated from there"
)
LINK_PASSED_OVER: Final = "Not delivered because remote does not support message tracing"

CLIENT_KIND: Final = 0
LEAF_KIND: Final = 4
GLOBAL_ACCOUNT: Final = "$G"
"""The account of clients that came without one."""

Event = tuple[str, dict[str, object]]
"""Its type, and its other fields."""


class TraceRequest(NamedTuple):
    """What a header block asks for."""

    destination: str
    is_only: bool
    headers: dict[str, list[str]]

    @property
    def is_valid(self) -> bool:
        """Whether something can be published to the destination."""
        tokens = self.destination.split(".")
        return not (
            {"", "*", ">"} & set(tokens) or any(char.isspace() for char in self.destination)
        )


def trace_request(block: bytes) -> TraceRequest | None:
    """None: the block asks for no trace."""
    headers: dict[str, list[str]] = {}
    for line in block.decode(errors="replace").split("\r\n")[1:]:
        name, _, value = line.partition(":")
        if name and (value := value.strip(" \t")):
            headers.setdefault(name, []).append(value)
    destinations = headers.get(TRACE_DEST, [])
    if not destinations or TRACE_DISABLED in destinations:
        return None
    only = headers.get(TRACE_ONLY, [""])[0].lower() in _YES
    return TraceRequest(destinations[0], only, headers)


class MessageTrace(NamedTuple):
    """One message of which a trace is made."""

    request: TraceRequest
    subject: bytes
    """By which it is routed."""
    said: bytes
    """As its publisher wrote it: with the domain, where that does not count."""
    size_bytes: int
    """Size of the headers and the payload."""
    deliveries: DeliveryTrace

    def text(
        self,
        server: Mapping[str, object],
        source: ClientConnection,
        *,
        account: str,
        streams: Callable[[bytes], Iterable[str]],
        now_ns: int,
    ) -> bytes:
        """The trace, as it is published. ``server``: what this node is; ``source``: the publisher's
        connection, with its account; ``streams``: which ones take a subject.
        """
        time = rfc3339(now_ns)
        events = [self._ingress(source, account), *self._outcomes(streams)]
        trace = {
            "server": {**server, "time": time},
            "request": {"header": self.request.headers, "msgsize": self.size_bytes},
            "events": [{"type": kind, "ts": time, **fields} for kind, fields in events],
        }
        return json.dumps(trace, separators=(",", ":")).encode()

    def _ingress(self, source: ClientConnection, account: str) -> Event:
        return "in", {
            **_client_fields(source),
            "acc": account or GLOBAL_ACCOUNT,
            "subj": _text(self.said),
            **_given(error=self.deliveries.refusal),
        }

    def _outcomes(self, streams: Callable[[bytes], Iterable[str]]) -> Iterator[Event]:
        goes_to_streams = False
        if self.said != self.subject:
            yield "sm", {"to": _text(self.subject)}
        for receiver, is_echo in self.deliveries.deliveries:
            if isinstance(receiver, LeafConnection):
                error = LINK_PASSED_OVER if self.deliveries.is_only else LINK_WITHOUT_TRACES
                name = str(receiver.session.info.get("server_name", ""))
                yield "eg", {"kind": LEAF_KIND, "cid": 0, **_given(name=name), "error": error}
            elif isinstance(receiver, Subscription):
                if isinstance(receiver.endpoint, ClientConnection):
                    yield "eg", self._egress(receiver, receiver.endpoint, is_echo)
                else:
                    goes_to_streams = True
        if goes_to_streams:
            for stream in streams(self.subject):
                yield "js", {"stream": stream, "subject": _text(self.subject)}

    def _egress(
        self, subscription: Subscription, client: ClientConnection, is_echo: bool
    ) -> dict[str, object]:
        denies, error = subscription.target, ""
        if is_echo:
            error = NO_ECHO
        elif denies is not None and denies(self.subject):
            error = DENIED
        queue = _text(subscription.queue)
        sub = _text(subscription.subject)
        return {**_client_fields(client), "sub": sub, **_given(queue=queue, error=error)}


def _client_fields(client: ClientConnection) -> dict[str, object]:
    session = client.session
    return {"kind": CLIENT_KIND, "cid": session.client_id, **_given(name=session.name)}


def _given(**fields: str) -> dict[str, object]:
    return {key: value for key, value in fields.items() if value}


def _text(subject: bytes) -> str:
    return subject.decode(errors="replace")


def rfc3339(ns: int) -> str:
    """With nanoseconds, in UTC."""
    seconds, part = divmod(ns, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{part:09}Z"
