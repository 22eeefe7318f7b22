"""What the clients of a NATS port are sent, in plain Python, which the compiled connection is held to.

Of https://docs.nats.io/reference/reference-protocols/nats-protocol, and, where that is silent, of what
nats-server does (tests/integration/test_port_like_nats_server.py). No frame is carried out before all of it
is there, so that it does not matter in which pieces it comes. INFO is left out.
"""

import json
from typing import Any, Final

from streamlog.nats.auth import err
from streamlog.nats.domain import bucket_subject
from tests.oracles.router import is_subscribable, matches

OK: Final = b"+OK\r\n"
RESERVED_REPLIES: Final = (b"$JS.ACK.", b"_R_.")
DIGITS_MAX: Final = 18


class Ended(Exception):
    """The connection ends, with these words or none."""


class Subscription:
    def __init__(self, client: "Client", subject: bytes, queue: bytes, sid: bytes) -> None:
        self.client = client
        self.subject = subject
        self.queue = queue
        self.sid = sid
        self.delivered = 0
        self.delivered_max = 0


class Port:
    """All clients, and their subscriptions in a list."""

    def __init__(
        self,
        *,
        line_bytes_max: int,
        payload_bytes_max: int,
        subscriptions_max: int,
        domain_prefix: bytes = b"",
    ) -> None:
        self.domain_prefix = domain_prefix
        self.line_bytes_max = line_bytes_max
        self.payload_bytes_max = payload_bytes_max
        self.subscriptions_max = subscriptions_max
        self.subscriptions: list[Subscription] = []

    def matching(self, subject: bytes) -> list[Subscription]:
        return [it for it in self.subscriptions if matches(it.subject, subject)]


class Client:
    def __init__(self, port: Port) -> None:
        self.port = port
        self.out = b""
        """What it is sent."""
        self.is_closed = False
        self._rest = b""
        self._has_connected = False
        self._options: dict[str, Any] = {}

    def feed(self, data: bytes) -> None:
        if self.is_closed:
            return
        self._rest += data
        try:
            while used := self._frame(self._rest):
                self._rest = self._rest[used:]
        except Ended as end:
            if words := str(end):
                self.out += f"-ERR '{words}'\r\n".encode()
            self.is_closed = True
            self._forget()

    def _forget(self) -> None:
        self.port.subscriptions = [it for it in self.port.subscriptions if it.client is not self]

    def _flag(self, name: str, default: bool) -> bool:
        value = self._options.get(name)
        return default if value is None else bool(value)

    @property
    def _is_verbose(self) -> bool:
        return self._flag("verbose", True)

    def _frame(self, data: bytes) -> int:
        """How many bytes it takes; 0: its end is to come."""
        line, end, _ = data.partition(b"\n")
        if not end:
            if len(line) > self.port.line_bytes_max + 9:  # "CONNECT ", and the carriage return
                raise Ended("maximum control line exceeded")
            return 0
        used = len(line) + 1
        line = line.removesuffix(b"\r")
        word = line.replace(b"\t", b" ").partition(b" ")[0]
        rest = line[len(word) :]
        if len(rest) > self.port.line_bytes_max + 1:
            raise Ended("maximum control line exceeded")
        fields = [it for it in rest.replace(b"\t", b" ").split(b" ") if it]
        match word.upper():
            case b"PUB" | b"HPUB":
                return self._publication(word.upper() == b"HPUB", fields, data, used)
            case b"SUB":
                self._subscribe(fields)
            case b"UNSUB":
                self._unsubscribe(fields)
            case b"PING":
                self.out += b"PONG\r\n"
            case b"CONNECT":
                self._connect(rest)
            case b"PONG" | b"INFO" | b"+OK":
                pass
            case b"-ERR":
                raise Ended
            case _:
                raise Ended("Unknown Protocol Operation")
        return used

    def _connect(self, text: bytes) -> None:
        try:
            options = json.loads(text.decode(errors="replace"))
        except (ValueError, RecursionError):
            raise Ended from None
        if not isinstance(options, dict):
            raise Ended
        flags = ("verbose", "pedantic", "echo", "headers", "no_responders")
        if any(not isinstance(options.get(it, False), bool | None) for it in flags):
            raise Ended
        protocol = options.get("protocol", 0)
        if protocol is not None and type(protocol) is not int:
            raise Ended
        if self._has_connected:
            self._forget()
        self._has_connected = True
        self._options = options
        if (protocol or 0) not in (0, 1):
            raise Ended("invalid client protocol")
        if self._flag("no_responders", False) and not self._flag("headers", False):
            raise Ended("no responders requires headers support")
        if self._is_verbose:
            self.out += OK

    def _mine(self) -> dict[bytes, Subscription]:
        return {it.sid: it for it in self.port.subscriptions if it.client is self}

    def _subscribe(self, fields: list[bytes]) -> None:
        if len(fields) not in (2, 3):
            raise Ended
        subject, sid = fields[0], fields[-1]
        queue = fields[1] if len(fields) == 3 else b""
        mine = self._mine()
        if len(mine) >= self.port.subscriptions_max:
            self.out += b"-ERR 'maximum subscriptions exceeded'\r\n"
            return
        if sid not in mine:
            if not is_subscribable(subject):
                self.out += b"-ERR 'Invalid Subject'\r\n"
                return
            self.port.subscriptions.append(Subscription(self, subject, queue, sid))
        if self._is_verbose:
            self.out += OK

    def _unsubscribe(self, fields: list[bytes]) -> None:
        if len(fields) not in (1, 2):
            raise Ended
        most = _number(fields[1]) if len(fields) == 2 else -1
        subscription = self._mine().get(fields[0])
        if subscription is not None:
            if most > subscription.delivered:
                subscription.delivered_max = most
            else:
                self.port.subscriptions.remove(subscription)
        if self._is_verbose:
            self.out += OK

    def _publication(self, has_headers: bool, fields: list[bytes], data: bytes, used: int) -> int:
        if has_headers and not self._flag("headers", False):
            raise Ended
        if len(fields) - has_headers not in (2, 3):
            raise Ended
        total = _number(fields[-1])
        head = _number(fields[-2]) if has_headers else 0
        if not 0 <= head <= total:
            raise Ended
        if total > self.port.payload_bytes_max:
            raise Ended("Maximum Payload Violation")
        body = data[used : used + total + 2]
        if len(body) < total + 2:
            return 0
        if not body.endswith(b"\r\n"):
            raise Ended("Unknown Protocol Operation")
        reply = fields[1] if len(fields) - has_headers == 3 else b""
        subject = bucket_subject(fields[0], self.port.domain_prefix) or fields[0]
        self._publish(subject, reply, body[:head], body[head:-2])
        return used + total + 2

    def _publish(self, subject: bytes, reply: bytes, head: bytes, payload: bytes) -> None:
        tokens = subject.split(b".")
        if self._flag("pedantic", True) and {b"", b"*", b">"} & set(tokens):
            self.out += b"-ERR 'Invalid Publish Subject'\r\n"
        if reply.startswith(RESERVED_REPLIES) and reply != b"$JS.ACK.":
            self.out += f"-ERR '{err.reply_violation(reply)}'\r\n".encode()
            return
        if self._is_verbose:
            self.out += OK
        echo = self._flag("echo", True)
        takers = [it for it in self.port.matching(subject) if echo or it.client is not self]
        for taker in takers:  # each queue group has one member here
            taker.client._deliver(taker, subject, reply, head, payload)
        if not takers and reply and self._flag("no_responders", False):
            self._tell_no_responders(subject, reply)

    def _deliver(
        self, taker: Subscription, subject: bytes, reply: bytes, head: bytes, payload: bytes
    ) -> None:
        if not self._flag("headers", False):
            head = b""
        size = len(head) + len(payload)
        sizes = b"%d %d" % (len(head), size) if head else b"%d" % size
        fields = b" ".join(filter(None, (subject, taker.sid, reply, sizes)))
        self.out += b"%b %b\r\n%b%b\r\n" % (b"HMSG" if head else b"MSG", fields, head, payload)
        taker.delivered += 1
        if taker.delivered == taker.delivered_max:
            self.port.subscriptions.remove(taker)

    def _tell_no_responders(self, subject: bytes, reply: bytes) -> None:
        for it in self.port.matching(reply):
            if it.client is self and not it.queue:
                head = b"NATS/1.0 503\r\nNats-Subject: %b\r\n\r\n" % subject
                fields = (reply, it.sid, len(head), len(head), head)
                self.out += b"HMSG %b %b %d %d\r\n%b\r\n" % fields
                break


def _number(text: bytes) -> int:
    return int(text) if text.isdigit() and len(text) <= DIGITS_MAX else -1
