"""A compiled connection of the port answers as a naive one, in whatever pieces its client speaks."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlog.nats.client_connection import ClientConnection
from streamlog.nats.message_trace import MessageTrace
from streamlog.nats.port_session import PortSession
from streamlog.nats.router import Router
from streamlog.nats.sockets import CloseReason
from tests.oracles import client_connection as oracle
from tests.raw_nats import frames_of, in_order

CLIENTS = 3
LINE_BYTES_MAX = 100
PAYLOAD_BYTES_MAX = 64
SUBSCRIPTIONS_MAX = 4
PREFIX = b"$JS.d.API."
HEAD = b"NATS/1.0\r\nA: b\r\n\r\n"


class Server:
    """The port, as far as sessions ask it: no client has to log in."""

    def __init__(self) -> None:
        self.closing: list[ClientConnection] = []
        """They end when the turn does."""

    def info(self, session: PortSession) -> dict[str, Any]:
        return {}

    def log_in(self, session: PortSession, options: Mapping[str, Any]) -> None:
        raise NotImplementedError

    def close(self, session: PortSession, reason: CloseReason) -> None:
        session.connection.suspend()
        self.closing.append(session.connection)

    def become_link(self, session: PortSession, asked: object) -> bool:
        return False

    def publish_trace(self, session: PortSession, trace: MessageTrace) -> None:
        raise NotImplementedError

    def publish_denied(self, stream: str, reply: bytes) -> None:
        raise NotImplementedError


class Said(NamedTuple):
    client: int
    data: bytes


Conversation = list[Said]

tokens = st.sampled_from([b"a", b"b", b"a", b"ab", b"\xff"])
subjects = st.lists(tokens | st.sampled_from([b"*", b">", b""]), min_size=1, max_size=3).map(
    lambda parts: b".".join(parts) or b"a"
)
buckets = st.sampled_from([b"$KV", b"$OBJ", b"$KV.", b"$OBJ.", b"$KV.a", b"$OBJ.a", b"$KVa.a"])
subjects |= st.tuples(st.sampled_from([b"", PREFIX, PREFIX, b"$JS.e.API."]), buckets).map(b"".join)
patterns = st.lists(tokens | st.sampled_from([b"*", b"*", b">"]), min_size=1, max_size=3).map(
    b".".join
)
patterns |= st.sampled_from([b"$KV.>", b"$OBJ.a", b"$JS.>", b"$JS.d.API.>"])
sids = st.sampled_from([b"1", b"2", b"3", b"x-7", b"\xfe"])
payloads = st.sampled_from([b"", b"x", b"\r\n", b"PING\r\n", b"\x00\xff", b"x" * PAYLOAD_BYTES_MAX])
payloads |= st.binary(max_size=20)
replies = st.sampled_from([b"", b"", b"a", b"b.a", b"$JS.ACK.x", b"$JS.ACK.", b"_R_.", b"_INBOX.7"])
gaps = st.sampled_from([b" ", b" ", b"\t", b"  "])
ends = st.sampled_from([b"\r\n", b"\r\n", b"\n", b" \r\n"])


@st.composite
def publications(draw: st.DrawFn) -> bytes:
    gap, payload, head = draw(gaps), draw(payloads), draw(st.sampled_from([b"", HEAD, b"junk"]))
    named = [draw(subjects), *filter(None, [draw(replies)])]
    if draw(st.booleans()):
        word, sizes, head = (
            draw(st.sampled_from([b"PUB", b"pub", b"PuB"])),
            [b"%d" % len(payload)],
            b"",
        )
    else:
        payload = payload[: PAYLOAD_BYTES_MAX - len(head)]
        word = draw(st.sampled_from([b"HPUB", b"hpub"]))
        sizes = [b"%d" % len(head), b"%d" % (len(head) + len(payload))]
    return gap.join([word, *named, *sizes]) + draw(ends) + head + payload + b"\r\n"


@st.composite
def subscriptions(draw: st.DrawFn) -> bytes:
    fields = [draw(patterns | subjects), draw(sids)]
    return draw(gaps).join([draw(st.sampled_from([b"SUB", b"sub"])), *fields]) + draw(ends)


@st.composite
def connects(draw: st.DrawFn) -> bytes:
    names = ("verbose", "pedantic", "echo", "headers", "no_responders")
    asked = [
        f'"{name}":{value}'
        for name in names
        if (value := draw(st.sampled_from(["", "true", "false", "false", "null"])))
    ]
    if draw(st.booleans()):
        protocol = draw(st.sampled_from(["1", "0", "2", "true", '"1"', "1.0", "null"]))
        asked.append(f'"protocol":{protocol}')
    kept: list[str] = []
    for each in asked:  # as many as a line takes
        if len(",".join([*kept, each])) < LINE_BYTES_MAX - 4:
            kept.append(each)
    return b"CONNECT {%b}" % ",".join(kept).encode() + draw(ends)


ends_of_subscriptions = st.builds(
    lambda sid, most, end: b"UNSUB " + sid + most + end,
    sids,
    st.sampled_from([b"", b" 1", b" 2", b" 3", b" 0", b" x", b" -1", b" 9999999999999999999"]),
    ends,
)
right = publications() | publications() | subscriptions() | ends_of_subscriptions
right |= st.sampled_from([b"PING\r\n", b"PONG\r\n", b"ping\n", b"INFO {}\r\n", b"+OK\r\n"])
wrong = st.sampled_from(
    [
        b"\r\n",
        b" PING\r\n",
        b"NONSENSE\r\n",
        b"-ERR 'x'\r\n",
        b"SUB a\r\n",
        b"SUB a b c d\r\n",
        b"SUB\r\n",
        b"UNSUB\r\n",
        b"UNSUB 1 2 3\r\n",
        b"PUB a\r\n",
        b"PUB a b c 1\r\nx\r\n",
        b"PUB a -1\r\n",
        b"PUB a 1x\r\n",
        b"PUB a 65\r\n",
        b"PUB a 999999999999999999\r\n",
        b"PUB a 9999999999999999999\r\n",
        b"PUB a 1\r\nxy\r\n",
        b"PUB a 2\r\nx\r\n",
        b"PUB a 1\r\nx\n\n",
        b"HPUB a 3 2\r\nxy\r\n",
        b"HPUB a 2\r\n",
        b"HPUB a x 2\r\nxy\r\n",
        b"CONNECT\r\n",
        b"CONNECT {x}\r\n",
        b"CONNECT []\r\n",
        b'CONNECT {"verbose":1}\r\n',
        b"SUB %b 1\r\n" % (b"a" * (LINE_BYTES_MAX - 2)),
        b"SUB %b 1\r\n" % (b"a" * (LINE_BYTES_MAX + 9)),
        b"SUB %b" % (b"a" * (LINE_BYTES_MAX + 9)),
        b"CONNECT %b\r\n" % (b" " * LINE_BYTES_MAX),
    ]
)
said = st.builds(Said, st.integers(0, CLIENTS - 1), right | right | right | connects() | wrong)
conversations = st.lists(said, max_size=25)
QUIET = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true}\r\n'


class Outcome(NamedTuple):
    frames: list[tuple[bytes, ...]]
    """What each client was sent."""
    subscriptions: int


def by_oracle(conversation: Conversation) -> Outcome:
    port = oracle.Port(
        line_bytes_max=LINE_BYTES_MAX,
        payload_bytes_max=PAYLOAD_BYTES_MAX,
        subscriptions_max=SUBSCRIPTIONS_MAX,
        domain_prefix=PREFIX,
    )
    clients = [oracle.Client(port) for _ in range(CLIENTS)]
    for index, data in conversation:
        clients[index].feed(data)
    return Outcome([in_order(frames_of(it.out)) for it in clients], len(port.subscriptions))


def by_port(conversation: Conversation) -> Outcome:
    """In one turn, or each piece in its own: that is the same."""
    router, server = Router(), Server()
    connections = [
        ClientConnection(router, line_bytes_max=LINE_BYTES_MAX, payload_bytes_max=PAYLOAD_BYTES_MAX)
        for _ in range(CLIENTS)
    ]
    for number, connection in enumerate(connections):
        connection.domain_prefix = PREFIX
        PortSession(
            connection,
            server,
            client_id=number,
            host="127.0.0.1",
            subscriptions_max=SUBSCRIPTIONS_MAX,
        )
    out = [b""] * CLIENTS
    for index, data in conversation:
        connections[index].feed(data)
        out = [before + it.take_output() for before, it in zip(out, connections, strict=True)]
        while server.closing:
            server.closing.pop().close()
    return Outcome([in_order(frames_of(it)) for it in out], len(router))


def cut(conversation: Conversation, points: list[int]) -> Conversation:
    """Each statement in pieces, among which no other client speaks."""
    pieces = []
    for index, data in conversation:
        bounds = sorted({0, len(data), *(point % (len(data) + 1) for point in points)})
        pieces += [Said(index, data[a:b]) for a, b in pairwise(bounds)]
    return pieces


@given(conversations, st.lists(st.integers(0, 200), max_size=6), st.booleans())
@settings(max_examples=800, deadline=None)
def test_connection_is_equal_to_the_oracle_in_any_pieces(
    conversation: Conversation, points: list[int], begins: bool
) -> None:
    if begins:
        conversation = [Said(index, QUIET) for index in range(CLIENTS)] + conversation
    wanted = by_oracle(conversation)
    assert by_port(conversation) == wanted
    assert by_port(cut(conversation, points)) == wanted


@given(conversations)
@settings(max_examples=60, deadline=None)
def test_connection_is_equal_to_the_oracle_byte_by_byte(conversation: Conversation) -> None:
    conversation = [Said(0, QUIET), *conversation]
    pieces = [Said(it.client, bytes([byte])) for it in conversation for byte in it.data]
    assert by_port(pieces) == by_oracle(conversation)


@given(st.lists(right | wrong, max_size=12), st.lists(st.integers(0, 2_000), max_size=8))
@settings(max_examples=300, deadline=None)
def test_statements_are_cut_anywhere(statements: list[bytes], points: list[int]) -> None:
    """Of one client, so that a piece may hold the end of one and the beginning of the next."""
    data = QUIET + b"".join(statements)
    whole = by_port([Said(0, data)])
    assert whole == by_port(cut([Said(0, data)], points))
    assert whole == by_oracle([Said(0, data)])


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=4))
@settings(max_examples=300, deadline=None)
def test_garbage_is_equal_to_the_oracle(data: bytes, points: list[int]) -> None:
    conversation = [Said(0, QUIET + data)]
    assert by_port(cut(conversation, points)) == by_port(conversation)


@given(
    st.lists(right, min_size=1, max_size=8),
    st.lists(st.tuples(st.integers(0, 2_000), st.integers(0, 255)), max_size=4),
    st.lists(st.integers(0, 2_000), max_size=4),
)
@settings(max_examples=400, deadline=None)
def test_damaged_statements_are_equal_to_the_oracle(
    statements: list[bytes], damage: list[tuple[int, int]], points: list[int]
) -> None:
    data = bytearray(b"".join(statements))
    for place, byte in damage:
        data[place % len(data)] = byte
    conversation = [Said(0, QUIET + bytes(data))]
    assert by_port(cut(conversation, points)) == by_oracle(conversation)


@pytest.mark.parametrize("word", [b"CONNECT ", b"SUB "])
def test_longest_line_is_taken_wherever_it_is_cut(word: bytes) -> None:
    """Also where only its line feed is to come."""
    arguments = b'{"verbose":false}' if word == b"CONNECT " else b"a 1"
    line = word + arguments.rjust(LINE_BYTES_MAX) + b"\r\n"
    wanted = by_oracle([Said(0, line), Said(0, b"PING\r\n")])
    assert wanted.frames[0][-1] == b"PONG\r\n"
    for point in range(len(line)):
        pieces = [Said(0, line[:point]), Said(0, line[point:]), Said(0, b"PING\r\n")]
        assert by_port(pieces) == wanted, point


def test_payload_is_half_there_and_nothing_of_it_is_sent() -> None:
    conversation = [Said(0, QUIET + b"SUB a 1\r\n"), Said(1, QUIET + b"PUB a 5\r\nhel")]
    assert by_port(conversation).frames[0] == ()
    conversation.append(Said(1, b"lo\r\n"))
    assert by_port(conversation).frames[0] == (b"MSG a 1 5\r\nhello\r\n",)
