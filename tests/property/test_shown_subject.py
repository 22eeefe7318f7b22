"""A message that is routed by one subject while its receivers see another one."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from streamlog.nats.client_connection import ClientConnection
from streamlog.nats.leaf_connection import LeafConnection
from streamlog.nats.router import Callback, Router, Subscription
from tests.oracles import router as oracle
from tests.oracles.router import Subscriber, Subscriptions

CLIENTS, PARTS, LINKS = (0, 1), (2, 3), (4, 5)
SEES_ROUTED = 2
"""Of the parts; the other one wants messages as clients see them."""
SHOWN, ACK = b"orders.eu@home", b"$JS.ACK.d.p1.s@1.c.1.2.3.4.5.0"

tokens = st.sampled_from([b"a", b"b"])
subjects = st.lists(tokens, min_size=1, max_size=3).map(b".".join)
patterns = st.lists(tokens | st.just(b"*"), max_size=2).flatmap(
    lambda head: (tokens | st.sampled_from([b"*", b">"])).map(lambda last: b".".join([*head, last]))
)
queues = st.sampled_from([b"", b"", b"q", b"r"])


class Session:
    """Answers nothing: what a connection asks of its session is not asked here."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


def fail(error: Exception) -> None:
    raise error


class Node:
    """A router with two clients, two parts of the node, and two links."""

    def __init__(self) -> None:
        self.router = Router()
        self.known = Subscriptions()
        self.clients = {owner: ClientConnection(self.router) for owner in CLIENTS}
        for client in self.clients.values():
            client.verbose = client.pedantic = False
            client.is_open = client.headers = True
        self.parts = {
            owner: Callback(self.router, failed=fail, sees_shown=owner != SEES_ROUTED)
            for owner in PARTS
        }
        self.links = {owner: LeafConnection(self.router) for owner in LINKS}
        for connection in (*self.clients.values(), *self.links.values()):
            connection.session = Session()
        for link in self.links.values():
            link.open()
        self._got: list[tuple[Subscriber, tuple[bytes, ...]]] = []

    def subscribe(self, owner: int, pattern: bytes, queue: bytes) -> None:
        subscriber = Subscriber(len(self.known.subscribers), owner, pattern, queue)
        self.known.add(subscriber)
        if owner in CLIENTS:
            self.clients[owner].subscribe(pattern, queue, b"%d" % subscriber.number)
        elif owner in LINKS:
            fields = [pattern, queue, b"1"] if queue else [pattern]
            self.links[owner].feed(b"LS+ %b\r\n" % b" ".join(fields))
        else:
            target = partial(self._take, subscriber)
            part = self.parts[owner]
            self.router.add(Subscription(part, pattern, queue=queue, target=target))

    def _take(self, subscriber: Subscriber, *message: bytes) -> None:
        self._got.append((subscriber, message))

    def take(self) -> list[tuple[Subscriber, tuple[bytes, ...]]]:
        """What parts of the node, and clients, got: subject, reply, block, payload."""
        got = list(self._got)
        self._got.clear()
        for client in self.clients.values():
            for subject, sid, reply, block, payload in frames(client.take_output()):
                got.append((self.known.subscribers[int(sid)], (subject, reply, block, payload)))
        return got

    def take_linked(self) -> dict[int, list[bytes]]:
        return {owner: link.take_output().split(b"\r\n")[:-1] for owner, link in self.links.items()}


def frames(said: bytes) -> Iterator[tuple[bytes, ...]]:
    """Each message that a client got: subject, sid, reply, block, payload."""
    while said:
        line, _, said = said.partition(b"\r\n")
        word, subject, sid, *fields = line.split(b" ")
        size = int(fields.pop())
        head = int(fields.pop()) if word == b"HMSG" else 0
        reply = fields.pop() if fields else b""
        yield subject, sid, reply, said[:head], said[head:size]
        said = said[size + 2 :]


subscribed = st.lists(
    st.tuples(st.sampled_from(CLIENTS + PARTS + LINKS), patterns, queues), max_size=10, unique=True
)


@given(subscribed, st.lists(subjects, min_size=1, max_size=4), st.sampled_from([b"", b"H\r\n\r\n"]))
@settings(max_examples=300, deadline=None)
def test_clients_see_the_shown_subject_and_links_have_both(
    subscribed: list[tuple[int, bytes, bytes]], published: list[bytes], block: bytes
) -> None:
    node = Node()
    for each in subscribed:
        node.subscribe(*each)
    node.take()
    node.take_linked()
    for subject in published:
        count = node.router.deliver_as(subject, SHOWN, b"x", reply=ACK, block=block)
        got, linked = node.take(), node.take_linked()
        here = Subscriptions()
        here.subscribers = [it for it in node.known.subscribers if it.owner not in LINKS]
        assert here.is_right([it for it, _ in got], subject)
        for subscriber, message in got:
            seen = subject if subscriber.owner == SEES_ROUTED else SHOWN
            assert message == (seen, ACK, block, b"x")
        plain_links = {it.owner for it in node.known.plain(subject)} & set(LINKS)
        distant = node.known.groups(subject).keys() - here.groups(subject).keys()
        named: list[bytes] = []
        for owner, lines in linked.items():
            if not lines:
                assert owner not in plain_links
                continue
            fields = lines[0].split(b" ")
            assert fields[:2] == [b"HMSG" if block else b"LMSG", subject]
            assert b"%b@%b" % (ACK, SHOWN) in fields[2:4]
            groups = fields[4 : -2 if block else -1] if fields[2] == b"+" else []
            assert groups or owner in plain_links
            wanted = {it.queue for it in node.known.subscribers if it.owner == owner}
            assert set(groups) <= wanted
            named += groups
        assert sorted(named) == sorted(distant)
        assert count == len(got) + sum(map(bool, linked.values()))


@given(subscribed, subjects, queues)
@settings(max_examples=300, deadline=None)
def test_interest_is_that_of_clients_and_of_parts_that_see_the_same(
    subscribed: list[tuple[int, bytes, bytes]], subject: bytes, queue: bytes
) -> None:
    node = Node()
    for each in subscribed:
        node.subscribe(*each)
    clients = Subscriptions()
    clients.subscribers = [it for it in node.known.subscribers if it.owner != SEES_ROUTED]
    assert node.router.interest(subject, queue=queue) == clients.interest(subject, queue, LINKS)
    for client in node.clients.values():
        client.close()
    for link in node.links.values():
        link.close()
    clients.subscribers = [it for it in clients.subscribers if it.owner in PARTS]
    assert node.router.interest(subject, queue=queue) == clients.interest(subject, queue, LINKS)


replies = st.lists(
    st.sampled_from([b"$JS.ACK.", b"$JS.ACK", b".", b"......", b"@", b"@", b"s", b"orders.eu"]),
    max_size=10,
).map(b"".join)


@given(replies | replies.map(lambda it: b"$JS.ACK." + it), st.booleans(), st.booleans())
@settings(max_examples=500, deadline=None)
def test_reply_of_a_linked_message_is_taken_apart_as_the_oracle_does(
    reply: bytes, is_queued: bool, has_headers: bool
) -> None:
    node = Node()
    node.subscribe(CLIENTS[0], b"in.*", b"q" if is_queued else b"")
    node.subscribe(PARTS[0], b"in.1", b"")
    node.take()
    fields = [reply] if reply else []
    if is_queued:
        fields = [b"+", reply, b"q"] if reply else [b"|", b"q"]
    head = b"NATS/1.0\r\n\r\n" if has_headers else b""
    sizes = [b"12", b"14"] if has_headers else [b"2"]
    word = b"HMSG" if has_headers else b"LMSG"
    line = b" ".join([word, b"in.1", *fields, *sizes])
    said = b"%b\r\n%bhi\r\n" % (line, head)
    node.links[LINKS[0]].feed(said)
    got = {it.owner: message for it, message in node.take()}
    shown, short = oracle.shown(b"in.1", reply)
    assert got == {
        CLIENTS[0]: (shown, short, head, b"hi"),
        PARTS[0]: (b"in.1", short, head, b"hi"),
    }
