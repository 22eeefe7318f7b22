"""A node's NATS port answers as nats-server does, byte for byte, whatever a client says.

The same bytes go to a real nats-server and to a node. Of the answers only INFO is left out, and the
order in which several subscriptions get one message, which nats-server does not promise. What is
different by intent is in ``DIFFERENCES``, and only there.
"""

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.raw_nats import END, Answer, answer_to
from tools.nodes.node_process import NodeProcess, Settings
from tools.nodes.ports import free_port
from tools.nodes.server_process import NatsServer

QUIET: Final = b'CONNECT {"verbose":false,"pedantic":false}\r\n'
HEADERS: Final = b'CONNECT {"verbose":false,"pedantic":false,"headers":true}\r\n'
RESPONDERS: Final = b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\n'
VERBOSE: Final = b'CONNECT {"verbose":true,"pedantic":false}\r\n'
PEDANTIC: Final = b'CONNECT {"verbose":false,"pedantic":true}\r\n'
NO_ECHO: Final = b'CONNECT {"verbose":false,"echo":false}\r\n'

FUZZ_SEED: Final = 20_261_128
FUZZ_FRAMES: Final = 2_000
SLOW_FUZZ_FRAMES: Final = 1_000_000
RESETS_MAX: Final = 5
GROWTH_BYTES_MAX: Final = 64 << 20
"""Of a node's memory, by the scripts of the slow test."""


def connect(options: str) -> bytes:
    return f"CONNECT {options}\r\n".encode()


def pub(subject: bytes, payload: bytes = b"x", reply: bytes = b"") -> bytes:
    fields = b" ".join(filter(None, (subject, reply, b"%d" % len(payload))))
    return b"PUB %b\r\n%b\r\n" % (fields, payload)


def hpub(head: bytes, payload: bytes = b"x", subject: bytes = b"a") -> bytes:
    sizes = b"%d %d" % (len(head), len(head) + len(payload))
    return b"HPUB %b %b\r\n%b%b\r\n" % (subject, sizes, head, payload)


HEAD: Final = b"NATS/1.0\r\n\r\n"

SCRIPTS: Final[dict[str, bytes]] = {
    # Before and around CONNECT
    "ping": b"PING\r\nPING\r\n",
    "publish before connect": b"SUB a 1\r\n" + pub(b"a"),
    "connect after subscribe": b"SUB a 1\r\n" + QUIET + pub(b"a"),
    "connect without options": connect("{}") + b"SUB a 1\r\n" + pub(b"a"),
    "connect with nulls": connect('{"verbose":null,"name":null,"protocol":null}') + b"SUB a 1\r\n",
    "connect with one key twice": connect('{"verbose":true,"verbose":false}') + b"SUB a 1\r\n",
    "connect after a tab": b'CONNECT\t{"verbose":false}\r\nSUB a 1\r\n',
    "connect without object": b"CONNECT\r\n",
    "connect with a space": b"CONNECT \r\n",
    "connect with no JSON": connect("{x}"),
    "connect with a list": connect("[]"),
    "connect with a string": connect('"x"'),
    "connect with a number": connect("1"),
    "connect with more behind": connect("{} x"),
    "connect with a verbose number": connect('{"verbose":1}'),
    "connect with a numeric name": connect('{"name":1}'),
    "connect with a numeric language": connect('{"lang":1}'),
    "connect with a numeric user": connect('{"verbose":false,"user":1}'),
    "connect with a user": connect('{"verbose":false,"user":"a","pass":"b"}'),
    "connect with a control character": connect('{"verbose":false,"name":"a\tb"}'),
    "connect with half a surrogate": connect('{"verbose":false,"name":"\\ud800"}'),
    "connect with bytes that are no UTF-8": b'CONNECT {"verbose":false,"name":"\xff"}\r\n',
    "connect in UTF-16": b"CONNECT " + '{"verbose":false}'.encode("utf-16-le") + b"\r\n",
    "connect with a long number": connect('{"verbose":false,"x":' + "9" * 4_000 + "}"),
    "protocol 1": connect('{"verbose":false,"protocol":1}') + b"PING\r\nPING\r\n",
    "protocol 2": connect('{"verbose":false,"protocol":2}'),
    "protocol -1": connect('{"verbose":false,"protocol":-1}'),
    "protocol as text": connect('{"verbose":false,"protocol":"1"}'),
    "protocol as a fraction": connect('{"verbose":false,"protocol":1.0}'),
    "protocol true": connect('{"verbose":false,"protocol":true}'),
    "protocol false": connect('{"verbose":false,"protocol":false}'),
    "connect twice": QUIET + b"SUB a 1\r\n" + QUIET + pub(b"a"),
    "connect twice, verbose then": QUIET + b"SUB a 1\r\n" + VERBOSE + pub(b"a") + b"UNSUB 1\r\n",
    "connect twice, one sid": QUIET + b"SUB a 1\r\n" + QUIET + b"SUB b 1\r\n" + pub(b"b"),
    # Words and lines
    "small letters": b'connect {"verbose":false}\r\nsub a 1\r\npub a 1\r\nx\r\nping\r\nunsub 1\r\n',
    "mixed letters": QUIET + b"sUb a 1\r\npUb a 1\r\nx\r\n",
    "tabs": QUIET + b"SUB\ta\t1\r\nPUB\ta\t1\r\nx\r\n",
    "many spaces": QUIET + b"SUB   a   1  \r\nPUB   a   1 \r\nx\r\n",
    "lines without carriage return": QUIET + b"SUB a 1\nPUB a 1\r\nx\r\nPING\n",
    "two carriage returns behind a size": QUIET + b"SUB a 1\r\nPUB a 1\r\r\nx\r\n",
    "carriage return within a subject": QUIET + b"SUB > 1\r\nPUB a\rb c\rd 1\r\nx\r\n",
    "zeros and other bytes": QUIET + b"SUB \x00 \xff\x01\r\n" + pub(b"\x00") + pub(b"\x0b\xfe"),
    "an empty line": QUIET + b"\r\nPING\r\n",
    "empty lines": QUIET + b"\r\n\r\n\n  \r\nPING\r\n",
    "space before a word": QUIET + b" PING\r\n",
    "tab before a word": QUIET + b"\tPING\r\n",
    "ping with more": QUIET + b"PING a b c\r\n",
    "half a ping": QUIET + b"PIN\r\n",
    "unknown word": QUIET + b"HELLO\r\n",
    "HTTP": b"GET / HTTP/1.1\r\n\r\n",
    "glued sub": QUIET + b"SUBx a 1\r\n",
    "glued pub": QUIET + b"PUBx a 1\r\nx\r\n",
    "words of servers": QUIET + b"MSG a 1 1\r\nx\r\n",
    "words of servers, with headers": QUIET + b"HMSG a 1 1 1\r\nx\r\n",
    "words of routes": QUIET + b"RMSG a 1 1\r\n",
    "words of routes, subscribe": QUIET + b"RS+ x a\r\n",
    "words of leafnodes": QUIET + b"LS+ a\r\n",
    "words of gateways": QUIET + b"A+ x\r\n",
    "info": QUIET + b"INFO {}\r\nPING\r\n",
    "ok": QUIET + b"+OK\r\n",
    "no ok": QUIET + b"+Y\r\n",
    "err": QUIET + b"-ERR 'x'\r\n",
    "longest line": QUIET + b"SUB " + b"a" * 4_094 + b" 1\r\n",
    "too long a line": QUIET + b"SUB " + b"a" * 4_095 + b" 1\r\n",
    "a line without end": QUIET + b"SUB " + b"a" * 5_000,
    "too long a publication": QUIET + b"PUB " + b"a" * 5_000 + b" 1\r\nx\r\n",
    "too long an unknown word": QUIET + b"X" * 6_000 + b"\r\n",
    "too long an info": QUIET + b"INFO " + b"a" * 5_000 + b"\r\n",
    "too long a connect": connect('{"verbose":false,"name":"' + "x" * 5_000 + '"}'),
    "a long connect": connect('{"verbose":false,"name":"' + "x" * 4_000 + '"}'),
    # Publications
    "reply": QUIET + b"SUB a 1\r\n" + pub(b"a", b"x", b"b"),
    "empty payload": QUIET + b"SUB a 1\r\n" + pub(b"a", b""),
    "payload with lines": QUIET + b"SUB a 1\r\n" + pub(b"a", b"\r\nPING\r\n"),
    "payload ends with a line feed alone": QUIET + b"SUB a 1\r\nPUB a 1\r\nx\nPING\r\n",
    "payload longer than said": QUIET + b"SUB a 1\r\nPUB a 1\r\nxy\r\n",
    "payload shorter than said": QUIET + b"SUB a 1\r\nPUB a 3\r\nx\r\n",
    "publication without size": QUIET + b"PUB a\r\n",
    "publication with nothing": QUIET + b"PUB \r\n",
    "publication with four fields": QUIET + b"PUB a b c 1\r\nx\r\n",
    "negative size": QUIET + b"PUB a -1\r\n",
    "no size": QUIET + b"PUB a x\r\n",
    "size with a plus": QUIET + b"PUB a +1\r\nx\r\n",
    "size in hexadecimal": QUIET + b"PUB a 0x1\r\nx\r\n",
    "huge size": QUIET + b"PUB a 99999999999999999999\r\n",
    "largest payload": QUIET + pub(b"a", bytes(1 << 20)),
    "too large a payload": QUIET + b"PUB a 1048577\r\nx",
    "much too large a payload": QUIET + b"PUB a 999999999\r\n",
    "wildcards are published as tokens": (
        QUIET + b"SUB > 1\r\nSUB a.* 2\r\nSUB a.b 3\r\n" + pub(b"a.*") + pub(b"a.>") + pub(b"*")
    ),
    "empty tokens are published to nobody": (
        QUIET + b"SUB > 1\r\n" + pub(b"a..b") + pub(b".a") + pub(b"a.") + pub(b".")
    ),
    "pedantic": PEDANTIC + b"SUB > 1\r\n" + pub(b"a.*") + pub(b"a..b") + pub(b"a*b") + pub(b">a"),
    "verbose": VERBOSE + b"SUB a 1\r\n" + pub(b"a") + b"UNSUB 1\r\nUNSUB 9\r\nPING\r\n",
    "reserved reply": (
        VERBOSE + b"SUB a 1\r\n" + pub(b"a", b"x", b"$JS.ACK.x.y") + pub(b"a", b"x", b"$JS.ACK.")
    ),
    "reserved reply that is no UTF-8": (QUIET + b"SUB a 1\r\n" + pub(b"a", b"", b"$JS.ACK.\xff")),
    "reserved reply with quotes": QUIET + b"SUB a 1\r\n" + pub(b"a", b"", b'$JS.ACK."\\'),
    "nearly a reserved reply": (
        QUIET + b"SUB a 1\r\n" + pub(b"a", b"x", b"$JS.ACK") + pub(b"a", b"x", b"$JS.ACKx")
    ),
    "reply of a service": QUIET + b"SUB a 1\r\n" + pub(b"a", b"", b"_R_.x"),
    "reply of a service without name": QUIET + b"SUB a 1\r\n" + pub(b"a", b"", b"_R_."),
    "system subjects": QUIET
    + b"SUB $SYS.x 1\r\nSUB $MQTT.> 2\r\n"
    + pub(b"$SYS.x")
    + pub(b"$MQTT.x"),
    # Headers
    "headers": HEADERS + b"SUB a 1\r\n" + hpub(HEAD),
    "headers and reply": HEADERS + b"SUB a 1\r\nHPUB a r 12 13\r\n" + HEAD + b"x\r\n",
    "headers of no bytes": HEADERS + b"SUB a 1\r\n" + hpub(b""),
    "headers that are none": HEADERS + b"SUB a 1\r\n" + hpub(b"abcde"),
    "headers longer than all": HEADERS + b"HPUB a 3 1\r\nx\r\n",
    "headers without size": HEADERS + b"HPUB a 12\r\n",
    "headers of a negative size": HEADERS + b"HPUB a -1 1\r\nx\r\n",
    "headers of no size": HEADERS + b"HPUB a x 1\r\nx\r\n",
    "headers with five fields": HEADERS + b"HPUB a b c 1 1\r\nx\r\n",
    "headers too large": HEADERS + b"HPUB a 12 1048577\r\n",
    "headers longer than a line": HEADERS + b"SUB a 1\r\n" + hpub(bytes(5_000)),
    "headers without asking": QUIET + hpub(HEAD),
    "headers before connect": hpub(HEAD),
    # No responders
    "no responders": RESPONDERS + b"SUB r 1\r\n" + pub(b"a", b"x", b"r"),
    "no responders, by a wildcard": RESPONDERS + b"SUB r.* 1\r\n" + pub(b"a", b"x", b"r.1"),
    "no responders, without subscription": RESPONDERS + pub(b"a", b"x", b"r"),
    "no responders, in a queue group": RESPONDERS + b"SUB r q 1\r\n" + pub(b"a", b"x", b"r"),
    "no responders, with headers": RESPONDERS + b"SUB r 1\r\nHPUB a r 12 12\r\n" + HEAD + b"\r\n",
    "no responders, not asked for": HEADERS + b"SUB r 1\r\n" + pub(b"a", b"x", b"r"),
    "no responders, without headers": connect('{"no_responders":true}'),
    "no responders to a subject that is none": (
        RESPONDERS + b"SUB r 1\r\n" + pub(b"a..b", b"x", b"r") + pub(b"a", b"x", b"r..")
    ),
    "no responders, up to a maximum": (
        RESPONDERS + b"SUB r 1\r\nUNSUB 1 1\r\n" + 2 * pub(b"a", b"", b"r")
    ),
    "no responders where oneself is the only one, without echo": (
        connect('{"verbose":false,"headers":true,"no_responders":true,"echo":false}')
        + b"SUB r 1\r\nSUB a 2\r\n"
        + pub(b"a", b"x", b"r")
    ),
    "a reply to the subject itself": RESPONDERS + b"SUB a 1\r\n" + pub(b"a", b"", b"a"),
    # Subscriptions
    "wildcards": (
        QUIET
        + b"SUB a.* 1\r\nSUB a.> 2\r\nSUB > 3\r\nSUB *.b 4\r\n"
        + pub(b"a.b")
        + pub(b"a", b"y")
        + pub(b"a.b.c", b"z")
    ),
    "stars within tokens": (
        QUIET
        + b"SUB a*.b 1\r\nSUB a> 2\r\nSUB **.x 3\r\n"
        + pub(b"a*.b")
        + pub(b"ab.b")
        + pub(b"a>")
        + pub(b"**.x")
    ),
    "no subjects": (
        QUIET + b"SUB a..b 1\r\nSUB .a 2\r\nSUB a. 3\r\nSUB >.a 4\r\nSUB . 5\r\nSUB a.>.b 6\r\n"
    ),
    "no subject, verbose": VERBOSE + b"SUB a..b 1\r\n",
    "forty tokens": QUIET
    + b"SUB "
    + b".".join([b"a"] * 40)
    + b" 1\r\n"
    + pub(b".".join([b"a"] * 40)),
    "without echo": NO_ECHO + b"SUB a 1\r\nSUB a q 2\r\n" + pub(b"a"),
    "queue groups": (QUIET + b"SUB a q 1\r\n" + pub(b"a") + b"SUB a r 2\r\n" + pub(b"a", b"y")),
    "queue groups of any name": QUIET + b"SUB a q.* 1\r\nSUB a .. 2\r\n" + pub(b"a"),
    "a sid again": QUIET + b"SUB a 1\r\nSUB b 1\r\n" + pub(b"a") + pub(b"b"),
    "a sid again for no subject": VERBOSE + b"SUB a 1\r\nSUB a..b 1\r\n",
    "a sid again in a queue group": QUIET + b"SUB a 1\r\nSUB a q 1\r\n" + pub(b"a"),
    "a sid of letters": QUIET
    + b"SUB a some-sid\r\n"
    + pub(b"a")
    + b"UNSUB some-sid\r\n"
    + pub(b"a"),
    "a sid after its end": QUIET + b"SUB a 1\r\nUNSUB 1\r\nSUB a 1\r\n" + pub(b"a"),
    "subscribe without sid": QUIET + b"SUB a\r\n",
    "subscribe with four fields": QUIET + b"SUB a b c d\r\n",
    "subscribe to nothing": QUIET + b"SUB \r\n",
    "maximum": QUIET
    + b"SUB a 1\r\nUNSUB 1 2\r\n"
    + pub(b"a", b"1")
    + pub(b"a", b"2")
    + pub(b"a", b"3"),
    "maximum that has passed": (
        QUIET
        + b"SUB a 1\r\n"
        + pub(b"a", b"1")
        + pub(b"a", b"2")
        + b"UNSUB 1 2\r\n"
        + pub(b"a", b"3")
    ),
    "maximum that comes later": (
        QUIET
        + b"SUB a 1\r\n"
        + pub(b"a", b"1")
        + b"UNSUB 1 2\r\n"
        + pub(b"a", b"2")
        + pub(b"a", b"3")
    ),
    "maximum 0": QUIET + b"SUB a 1\r\nUNSUB 1 0\r\n" + pub(b"a"),
    "maximum -1": QUIET + b"SUB a 1\r\nUNSUB 1 -1\r\n" + pub(b"a"),
    "maximum of letters": QUIET + b"SUB a 1\r\nUNSUB 1 x\r\n" + pub(b"a"),
    "huge maximum": QUIET + b"SUB a 1\r\nUNSUB 1 99999999999999999999999\r\n" + pub(b"a"),
    "maximum lowered": QUIET + b"SUB a 1\r\nUNSUB 1 5\r\nUNSUB 1 1\r\n" + 2 * pub(b"a"),
    "maximum raised": QUIET + b"SUB a 1\r\nUNSUB 1 1\r\nUNSUB 1 3\r\n" + 4 * pub(b"a"),
    "maximum of one among three": (
        QUIET
        + b"SUB a 1\r\nSUB a 2\r\nSUB a 3\r\nUNSUB 2 1\r\n"
        + pub(b"a", b"x")
        + pub(b"a", b"y")
    ),
    "unsubscribe with three fields": QUIET + b"UNSUB 1 2 3\r\n",
    "unsubscribe nothing": QUIET + b"UNSUB \r\n",
}


class Difference(NamedTuple):
    """``script`` is answered otherwise, for this reason."""

    script: bytes
    reason: str


_GLUED: Final = "A word that only begins like an operation is none; nats-server looks no further."
_LINE_FEED: Final = (
    "A line ends with its line feed; nats-server takes one that follows a word as a space."
)
_NO_FIELDS: Final = "Both close; only nats-server sends an error where a word has no field at all."
_DIGITS: Final = (
    "The number is read and written as a number; nats-server repeats the digits, up to 9."
)
_JSON: Final = "Python's JSON is not Go's; no client sends this."
_RETURN: Final = (
    "A carriage return within a line belongs to its field; in nats-server's SUB it is a space."
)
_SECOND: Final = "The options of a second CONNECT are those that it names, not those of the first."
_LENGTH: Final = "The limit of a line holds for every line; nats-server has none for this one."
_SERVERS: Final = "What only servers send is of no use here, and not looked into."

DIFFERENCES: Final[dict[str, Difference]] = {
    "glued ping": Difference(QUIET + b"PINGx\r\n", _GLUED),
    "glued pong": Difference(QUIET + b"PONGx\r\n", _GLUED),
    "glued ok": Difference(QUIET + b"+OKxx\r\n", _GLUED),
    "glued connect": Difference(b'CONNECT{"verbose":false}\r\n', _GLUED),
    "glued connect, more": Difference(b"CONNECTx {}\r\n", _GLUED),
    "sub without fields": Difference(QUIET + b"SUB\r\n", _NO_FIELDS),
    "unsub without fields": Difference(QUIET + b"UNSUB\r\n", _NO_FIELDS),
    "pub without fields": Difference(QUIET + b"PUB\r\n", _NO_FIELDS),
    "hpub without fields": Difference(HEADERS + b"HPUB\r\n", _NO_FIELDS),
    "line feed behind a word": Difference(QUIET + b"UNSUB \n6\r\n", _LINE_FEED),
    "err without fields": Difference(QUIET + b"-ERR\r\n", _NO_FIELDS),
    "carriage return within a line": Difference(QUIET + b"SUB a\r 1\r\n" + pub(b"a"), _RETURN),
    "two carriage returns": Difference(QUIET + b"SUB a 1\r\r\n" + pub(b"a"), _RETURN),
    "size with zeros": Difference(QUIET + b"SUB a 1\r\nPUB a 0001\r\nx\r\n", _DIGITS),
    "size of ten digits": Difference(QUIET + b"SUB a 1\r\nPUB a 0000000001\r\nx\r\n", _DIGITS),
    "size of two gigabytes": Difference(QUIET + b"PUB a 2147483648\r\n", _DIGITS),
    "options null": Difference(connect("null"), _JSON),
    "options in capitals": Difference(connect('{"VERBOSE":false}') + b"SUB a 1\r\n", _JSON),
    "options with NaN": Difference(connect('{"verbose":false,"x":NaN}'), _JSON),
    "options of many levels": Difference(
        connect('{"verbose":false,"x":' + "[" * 1_500 + "]" * 1_500 + "}"), _JSON
    ),
    "huge protocol": Difference(connect('{"protocol":99999999999999999999}'), _JSON),
    "echo of the first connect": Difference(NO_ECHO + QUIET + b"SUB a 2\r\n" + pub(b"a"), _SECOND),
    "headers of the first connect": Difference(HEADERS + QUIET + hpub(HEAD), _SECOND),
    "too long a ping": Difference(QUIET + b"PING " + b"a" * 5_000 + b"\r\n", _LENGTH),
    "too long an ok": Difference(QUIET + b"+OK " + b"a" * 5_000 + b"\r\n", _LENGTH),
    "too many spaces": Difference(QUIET + b"SUB " + b" " * 4_094 + b"a 1\r\n", _LENGTH),
    "info without object": Difference(QUIET + b"INFO\r\n", _SERVERS),
    "info with no JSON": Difference(QUIET + b"INFO x\r\n", _SERVERS),
    "reply of a gateway": Difference(
        QUIET + b"SUB a 1\r\n" + pub(b"a", b"", b"_GR_.x") + pub(b"a", b"", b"$GR.x"),
        "There are no gateways, so that no reply is reserved for them.",
    ),
    "pedantic, and a payload that is cut": Difference(
        PEDANTIC + b"PUB a.* 3\r\nx\r\n" + END,
        "A publication is looked into when all of it is there; nats-server checks its subject first.",
    ),
}


class Servers(NamedTuple):
    nats: NatsServer
    node: NodeProcess
    port: int
    """Of the node."""

    def answers(self, script: bytes) -> tuple[Answer, Answer]:
        """nats-server's, and ours.

        Asked again where they differ: a server that closes with the rest of a script unread resets
        the connection, which may overtake what it said last.
        """
        for _ in range(RESETS_MAX):
            theirs, ours = answer_to(self.nats.port, script), answer_to(self.port, script)
            if theirs == ours or not (theirs.is_closed and ours.is_closed):
                break
        return theirs, ours


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    folder = tmp_path_factory.mktemp("like")
    nats, port = NatsServer(folder), free_port()
    settings: Settings = {"nats": {"servers": []}, "nats_listen": {"port": port}}
    node = NodeProcess(1, folder / "node", settings=settings)
    try:
        nats.start()
        node.start()
        yield Servers(nats, node, port)
        assert "Traceback" not in node.log_text()
    finally:
        node.kill()
        nats.kill()


@pytest.mark.parametrize("name", SCRIPTS)
def test_port_answers_as_nats_server(servers: Servers, name: str) -> None:
    theirs, ours = servers.answers(SCRIPTS[name])
    assert ours == theirs


@pytest.mark.parametrize("name", DIFFERENCES)
def test_port_answers_otherwise_by_intent(servers: Servers, name: str) -> None:
    theirs, ours = servers.answers(DIFFERENCES[name].script)
    assert ours != theirs


class Fuzz:
    """Frames that clients send, most of them right, and few subjects, so that much matches."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def script(self, frames: int, *, wrong: float) -> bytes:
        """``wrong``: which share of the frames may end the connection."""
        pick = self._random
        options = {name: pick.choice((b"true", b"false")) for name in FLAGS}
        if options[b"no_responders"] == b"true":
            options[b"headers"] = b"true"
        asked = b",".join(b'"%b":%b' % each for each in (*options.items(), (b"pedantic", b"false")))
        self._headers = options[b"headers"] == b"true"
        self._queues = 0
        frames_of = (
            self._wrong() if pick.random() < wrong else self._right() for _ in range(frames)
        )
        return b"CONNECT {%b}\r\n" % asked + b"".join(frames_of) + PADDING

    def _right(self) -> bytes:
        pick = self._random
        kind = pick.choices(KINDS, weights=WEIGHTS)[0]
        sid = b"%d" % pick.randrange(8)
        if kind == "sub":
            return b"SUB %b %b\r\n" % (self._pattern(), sid)
        if kind == "queue":  # of one member each: which one gets a message is chance
            self._queues += 1
            return b"SUB %b q%d %b\r\n" % (self._pattern(), self._queues, sid)
        if kind == "unsub":
            return b"UNSUB %b\r\n" % sid
        if kind == "max":
            return b"UNSUB %b %d\r\n" % (sid, pick.randrange(6))
        if kind == "ping":
            return pick.choice((b"PING\r\n", b"PONG\r\n", b"ping\r\n", b"\r\n"))
        subject, reply, payload = self._subject(), b"", pick.choice(PAYLOADS)
        if pick.random() < 0.3:
            reply = self._subject()
        if kind == "hpub" and self._headers:
            fields = b" ".join(filter(None, (subject, reply, b"12 %d" % (12 + len(payload)))))
            return b"HPUB %b\r\n%b%b\r\n" % (fields, HEAD, payload)
        return pub(subject, payload, reply)

    def _wrong(self) -> bytes:
        """One with a byte that is another, missing or too many; or bytes of no meaning.

        Not what is answered otherwise by intent: words that are glued, line ends, zeros of a size.
        """
        pick = self._random
        frame = bytearray(self._right())
        damage = pick.choice(("other", "missing", "more", "nothing"))
        line_end = frame.index(b"\r\n")
        if damage == "nothing" or frame[:4].upper() in (b"PING", b"PONG", b"\r\n"):
            return pick.randbytes(pick.randrange(1, 12)).translate(None, b"\r\n") + b"\r\n"
        place = pick.randrange(line_end)
        if damage == "other":
            frame[place] = pick.choice(DAMAGE)
        elif damage == "missing":
            del frame[place]
        else:
            frame.insert(place, pick.choice(DAMAGE))
        return bytes(frame)

    def _subject(self) -> bytes:
        pick = self._random
        tokens = [pick.choice(TOKENS) for _ in range(pick.choice((1, 1, 2, 2, 3)))]
        return b".".join(tokens) or b"a"

    def _pattern(self) -> bytes:
        pick = self._random
        tokens = [pick.choice(PATTERN_TOKENS) for _ in range(pick.choice((1, 1, 2, 2, 3)))]
        return b".".join(tokens) or b">"


FLAGS: Final = (b"verbose", b"echo", b"headers", b"no_responders")
"""Not ``pedantic``: nats-server repeats its error of a subject whose payload comes in two reads."""
DAMAGE: Final = b" \t.*>19aX\x00\xff"
PADDING: Final = b"\r\n" * 1_000
"""Empty lines, or the rest of a payload whose size has been damaged."""
PAYLOADS: Final = (b"", b"x", b"\r\n", b"\x00\xff" * 3, b"x" * 60)
KINDS: Final = ("sub", "queue", "unsub", "max", "ping", "pub", "hpub")
WEIGHTS: Final = (6, 2, 2, 2, 1, 10, 3)
TOKENS: Final = (b"a", b"b", b"a", b"b", b"ab", b"\xff", b"*", b"")
PATTERN_TOKENS: Final = (b"a", b"b", b"a", b"b", b"ab", b"*", b"*", b">", b"")


def same_answers(servers: Servers, scripts: Callable[[], Iterator[bytes]]) -> None:
    for number, script in enumerate(scripts()):
        theirs, ours = servers.answers(script)
        assert ours == theirs, f"script {number}: {script!r}"


def test_port_answers_random_frames_as_nats_server(servers: Servers) -> None:
    fuzz = Fuzz(FUZZ_SEED)
    same_answers(servers, lambda: (fuzz.script(20, wrong=0.05) for _ in range(FUZZ_FRAMES // 20)))


@pytest.mark.slow
def test_port_answers_a_million_random_frames_as_nats_server(servers: Servers) -> None:
    fuzz = Fuzz(FUZZ_SEED + 1)
    same_answers(servers, lambda: (fuzz.script(50, wrong=0.02) for _ in range(2_000)))
    before = resident_bytes(servers.node)
    frames = SLOW_FUZZ_FRAMES - 100_000
    same_answers(servers, lambda: (fuzz.script(100, wrong=0.01) for _ in range(frames // 100)))
    assert resident_bytes(servers.node) - before < GROWTH_BYTES_MAX


def resident_bytes(node: NodeProcess) -> int:
    for line in Path(f"/proc/{node.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise LookupError("VmRSS")
