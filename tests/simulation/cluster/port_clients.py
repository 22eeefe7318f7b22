"""Clients of nodes' NATS ports, on a machine of their own: what they publish, ask, answer and hear."""

import json
import random
from collections import Counter, deque
from collections.abc import Callable, Sequence
from functools import partial

from streamlog.model import NodeId
from streamlog.nats.port_session import LINK_OPTION
from tests.simulation.checkers import Violation
from tests.simulation.cluster.host import Host
from tests.simulation.cluster.publishers import NO_RESPONDERS
from tests.simulation.cluster.settings import CLUSTER_ID
from tests.simulation.cluster.tcp import NATS_PORT, Endpoint, Tcp
from tests.simulation.events import Events

RECONNECT_US = 100_000
PATIENCE_US = 3_000_000
"""A connection that brings nothing for so long is given up."""
PING_US = 1_000_000
SPEAK_US = 100_000
"""Between two messages of a client, about."""
SETTLED_US = 1_500_000
"""What was said so long ago was heard by all who hear it."""
SETTLED = 5
"""So many messages of each client, one after the other, are heard by all: then all is well."""
ASKED = ("echo", "nobody")

Told = Callable[[str, bytes], None]


class PortClient:
    """One client of one node's port; it connects again for as long as the story lasts."""

    def __init__(
        self, number: int, node_id: NodeId, host: Host, tcp: Tcp, clients: "PortClients"
    ) -> None:
        self.number = number
        self.node_id = node_id
        self.connections = 0
        """How many it has had: what one hears twice is a mistake, what two hear may be none."""
        self.since_us = 0
        """When it was let in, by the present one."""
        self.is_open = False
        self._host = host
        self._tcp = tcp
        self._clients = clients
        self._endpoint: Endpoint | None = None
        self._buffer = b""
        self._heard_us = 0

    @property
    def inbox(self) -> str:
        return f"_INBOX.{self.number}"

    def call(self) -> None:
        """Connect, and again a little later, until that is done."""
        if self._endpoint is not None:
            return
        self.connections += 1
        attempt = self.connections

        def connected(endpoint: Endpoint) -> None:
            if self._endpoint is not None or attempt != self.connections:
                endpoint.close()
                return
            self._endpoint, self._buffer = endpoint, b""
            self._heard_us = self._clients.events.now_us
            endpoint.on_change = partial(self._arrived, endpoint)
            options = {"verbose": False, "headers": True, "no_responders": True, "protocol": 1}
            self._send(b"CONNECT " + json.dumps(options).encode() + b"\r\n")
            for sid, subject in enumerate(self._subjects()):
                self._send(f"SUB {subject} {sid}\r\n".encode())
            self._send(b"PING\r\n")
            self._arrived(endpoint)

        self._tcp.connect(self._host, self.node_id, connected, lambda: None, port=NATS_PORT)
        self._clients.events.after(RECONNECT_US, self.call)

    def _subjects(self) -> list[str]:
        """It is in the queue groups of what the others say, so that a link has to be taken."""
        groups = (
            f"{subject}.{other} q"
            for subject in ("work", "echo")
            for other in range(self._clients.count)
            if other != self.number
        )
        return [f"{self.inbox}.>", "news.*", *groups]

    def look(self) -> None:
        """Whether the other side is still there."""
        if self._endpoint is not None:
            if self._clients.events.now_us - self._heard_us > PATIENCE_US:
                self.end()
            else:
                self._send(b"PING\r\n")
        self._clients.events.after(PING_US, self.look)

    def end(self) -> None:
        endpoint, self._endpoint, self.is_open = self._endpoint, None, False
        if endpoint is not None:
            endpoint.on_change = None
            endpoint.close()
            self._clients.events.after(RECONNECT_US, self.call)

    def publish(self, subject: str, reply: str, body: bytes, head: bytes = b"") -> bool:
        """False: it is not connected."""
        if not self.is_open:
            return False
        target = f"{subject} {reply}".rstrip()
        if head:
            line = f"HPUB {target} {len(head)} {len(head) + len(body)}\r\n".encode()
        else:
            line = f"PUB {target} {len(body)}\r\n".encode()
        return self._send(line + head + body + b"\r\n")

    def _send(self, data: bytes) -> bool:
        endpoint = self._endpoint
        if endpoint is None:
            return False
        try:
            endpoint.send(data)
        except OSError:
            self.end()
            return False
        return True

    def _arrived(self, endpoint: Endpoint) -> None:
        if endpoint is not self._endpoint:
            return
        if endpoint.buffer:
            self._heard_us = self._clients.events.now_us
            self._buffer += endpoint.take(len(endpoint.buffer))
            while self._endpoint is endpoint and self._carry_out():
                pass
        if endpoint.ended or endpoint.broken:
            self.end()

    def _carry_out(self) -> bool:
        """Whether there was a whole frame."""
        line, found, rest = self._buffer.partition(b"\r\n")
        if not found:
            return False
        word, *fields = line.decode().split(" ")
        body, head = b"", b""
        if word in ("MSG", "HMSG"):
            size = int(fields[-1])
            if len(rest) < size + 2:
                return False
            body, rest = rest[:size], rest[size + 2 :]
            if word == "HMSG":
                head, body = body[: int(fields[-2])], body[int(fields[-2]) :]
        self._buffer = rest
        match word:
            case "PING":
                self._send(b"PONG\r\n")
            case "PONG" if not self.is_open:
                self.is_open, self.since_us = True, self._clients.events.now_us
            case "MSG" | "HMSG":
                sizes = 1 + (word == "HMSG")
                reply = fields[2] if len(fields) == 2 + sizes + 1 else ""
                self._clients.heard(self, fields[0], reply, head, body)
            case "-ERR":
                raise Violation(f"client {self.number} is told {line.decode()}")
        return True


class PortClients:
    """A client for each node. They speak to each other all the time, and publish for ``Publishers``.

    What one of them says is heard by each other one at most once, and by one member of a queue group at most;
    in the end it is heard by each, and by one.
    """

    def __init__(
        self,
        events: Events,
        rng: random.Random,
        tcp: Tcp,
        nodes: Sequence[NodeId],
        host: Host,
        *,
        link_of: Callable[[NodeId, NodeId], object],
    ) -> None:
        """``link_of``: a node's side of its link to another one; None: it has none."""
        self.events = events
        self.link_of = link_of
        self.count = len(nodes)
        self.told: Told = lambda _reply, _payload: None
        """A publisher is answered."""
        self._rng = rng
        self._clients = [PortClient(n, node_id, host, tcp, self) for n, node_id in enumerate(nodes)]
        self._expected: dict[str, tuple[int, int, int, tuple[object, int, int]]] = {}
        """Answers on their way over a link: who asked, who answers, what was said last by then, and the
        way: the link, and the connections of both.
        """
        self._asked: dict[str, int] = {}
        """By which connection of the client."""
        self._said = 0
        self._heard: Counter[tuple[str, int, int]] = Counter()
        """By what was said, and the client and its connection that heard it."""
        self._members: dict[str, int] = {}
        """By what was said to a queue group: the client that heard it."""
        self._answers: set[str] = set()
        self._waited: deque[tuple[int, str, dict[int, int]]] = deque()
        """What was said when, and by which connections others were there."""
        self._settled_run = 0
        self._missing = ""

    def begin(self) -> None:
        for client in self._clients:
            client.call()
            client.look()
            self._speak_soon(client)
        self._judge()

    # As the way of publishers

    def publish(self, subject: str, reply: str, head: bytes, body: bytes) -> int:
        """By any of them: a publisher's messages change between nodes."""
        client = self._rng.choice(self._clients)
        return int(client.publish(subject, f"{client.inbox}.pub.{reply}", body, head))

    # What they say to each other

    def _speak_soon(self, client: PortClient) -> None:
        self.events.after(self._rng.randint(1, 2 * SPEAK_US), partial(self._speak, client))

    def _speak(self, client: PortClient) -> None:
        self._speak_soon(client)
        self._said += 1
        what = f"{client.number}.{self._said}"
        there = {it.number: it.connections for it in self._clients if it.is_open}
        if client.is_open:
            for subject in ("news.x", f"work.{client.number}"):
                client.publish(subject, "", what.encode())
            self._asked[what] = client.connections
            for kind in ASKED:
                reply = f"{client.inbox}.{kind}.{what}"
                client.publish(f"{kind}.{client.number}", reply, what.encode())
        self._waited.append((self.events.now_us, what, there))

    def heard(self, client: PortClient, subject: str, reply: str, head: bytes, body: bytes) -> None:
        text, kind = body.decode(errors="replace"), subject.partition(".")[0]
        if kind == "news":
            self._once(f"news {text}", client)
            self._look_for_lost_answers(client, text)
        elif kind in ("work", "echo"):
            self._by_one_member(f"{kind} {text}", client)
            if kind == "echo" and client.publish(reply, "", body):
                self._expect_answer(client, text)
        else:
            _, _, kind, answered = subject.split(".", 3)
            is_refused = head.startswith(b"NATS/1.0 503")
            if kind == "pub":
                self.told(answered, NO_RESPONDERS if is_refused else body)
            elif kind == "nobody" and not is_refused:
                raise Violation(f"somebody answers where nobody is: {body!r}")
            else:
                self._once(f"{kind}-answer {answered}", client)
                self._answers.add(f"{kind} {answered}")

    def _expect_answer(self, member: PortClient, what: str) -> None:
        asker = self._clients[int(what.partition(".")[0])]
        line = self.link_of(member.node_id, asker.node_id)
        if line is not None and self._asked[what] == asker.connections and asker.is_open:
            way = line, member.connections, asker.connections
            self._expected[what] = asker.number, member.number, self._said, way

    def _look_for_lost_answers(self, client: PortClient, news: str) -> None:
        """One link, and one connection at either end of it, keep an order: what is heard over them was
        said after an answer, so the answer must have been heard.
        """
        speaker, said = map(int, news.split("."))
        for what, (asker, member, said_before, way) in tuple(self._expected.items()):
            if asker != client.number or member != speaker:
                continue
            line = self.link_of(self._clients[member].node_id, client.node_id)
            if (
                way != (line, self._clients[member].connections, client.connections)
                or f"echo {what}" in self._answers
            ):
                del self._expected[what]
            elif said > said_before:
                raise Violation(
                    f"client {client.number} hears of client {member} what was said after its answer"
                    f" to {what}, and never the answer"
                )

    def _once(self, what: str, client: PortClient) -> None:
        """A link that is made again, or a loop, would bring it twice."""
        place = what, client.number, client.connections
        self._heard[place] += 1
        if self._heard[place] > 1:
            raise Violation(f"client {client.number} hears {what} twice")

    def _by_one_member(self, what: str, client: PortClient) -> None:
        if what in self._members:
            first = self._members[what]
            raise Violation(f"{what} is heard by members {first} and {client.number} of its group")
        self._members[what] = client.number

    # Whether all is well

    @property
    def is_well(self) -> bool:
        """Each heard each other one of late."""
        return self._settled_run >= SETTLED * len(self._clients)

    def state(self) -> str:
        """What was not heard of what was said last."""
        return f"clients: {[it.number for it in self._clients if it.is_open]} are there; {self._missing}"

    def _judge(self) -> None:
        self.events.after(SPEAK_US, self._judge)
        while self._waited and self._waited[0][0] + SETTLED_US < self.events.now_us:
            _, what, there = self._waited.popleft()
            missing = self._missing_of(what, there)
            self._settled_run = 0 if missing else self._settled_run + 1
            self._missing = missing or self._missing

    def _missing_of(self, what: str, there: dict[int, int]) -> str:
        """Each client is to hear it, and one member of each group, and it is to be answered."""
        places = {f"news {what} by {it}": self._heard[f"news {what}", *it] for it in there.items()}
        places[f"work {what}"] = f"work {what}" in self._members
        places[f"echo {what}"] = f"echo {what}" in self._members
        places |= {f"{it} {what} answered": f"{it} {what}" in self._answers for it in ASKED}
        places["all clients are there"] = len(there) == len(self._clients)
        return ", ".join(place for place, is_there in places.items() if not is_there)


class Stranger:
    """Asks a port for a link with a token that is not that process's."""

    def __init__(self, host: Host, tcp: Tcp, node_id: NodeId, asks_as: NodeId, token: str) -> None:
        self._buffer = b""
        self._asks_as = asks_as
        asked = {"cluster": CLUSTER_ID, "node": asks_as, "token": token}

        def connected(endpoint: Endpoint) -> None:
            endpoint.on_change = lambda: self._arrived(endpoint)
            line = json.dumps({"verbose": False, "headers": True, LINK_OPTION: asked}).encode()
            endpoint.send(b"CONNECT " + line + b"\r\nPING\r\n")

        tcp.connect(host, node_id, connected, lambda: None, port=NATS_PORT)

    def _arrived(self, endpoint: Endpoint) -> None:
        self._buffer += endpoint.take(len(endpoint.buffer))
        if b"PONG" in self._buffer or b"LS+" in self._buffer:
            raise Violation(f"a stranger is taken for node {self._asks_as}")
        if endpoint.ended or endpoint.broken:
            endpoint.close()
