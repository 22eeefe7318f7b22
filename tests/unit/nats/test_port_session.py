"""The state machine of one client of the port: what it is told, and what waits, at each step."""

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pytest

from streamlog.nats.auth.port_authenticator import NO_LIMITS, PortLimits
from streamlog.nats.client_connection import ClientConnection
from streamlog.nats.message_trace import MessageTrace
from streamlog.nats.port_session import (
    NAME_CHARS_MAX,
    PINGS_UNANSWERED_MAX,
    PortSession,
)
from streamlog.nats.router import Router
from streamlog.nats.sockets import CloseReason

QUIET = b'CONNECT {"verbose":false,"pedantic":false,"protocol":1}\r\n'


class Access:
    """Subjects that begin with ``no`` are for nobody; deliveries of ``secret.x`` are denied."""

    version = 1
    is_constant = True

    def may_publish(self, subject: bytes) -> bool:
        return not subject.startswith(b"no")

    def unwritable(self, subject: bytes) -> str | None:
        return "guarded" if subject.startswith(b"no.stream") else None

    def may_subscribe(self, subject: bytes, queue: bytes | None) -> bool:
        return not subject.startswith(b"no") and queue != b"no"

    def denied_deliveries(
        self, subject: bytes, queue: bytes | None
    ) -> Callable[[bytes], bool] | None:
        return (lambda it: it == b"secret.x") if subject == b"secret.>" else None

    def delivered(self, reply: bytes) -> None:
        """It may be answered."""


class AllAccess(Access):
    def may_publish(self, subject: bytes) -> bool:
        return True

    def may_subscribe(self, subject: bytes, queue: bytes | None) -> bool:
        return True


class Login(NamedTuple):
    """As far as a session looks into it."""

    user: str = ""
    access: Access = AllAccess()
    limits: PortLimits = NO_LIMITS


def admit(session: PortSession, login: Login) -> None:
    session.admit(login, login.access)  # type: ignore[arg-type]


def user_of(session: PortSession) -> str | None:
    login: Any = session.login
    return None if login is None else login.user


class Server:
    """The port, as far as a session asks it."""

    def __init__(self) -> None:
        self.logins: list[Mapping[str, Any]] = []
        self.closed: list[CloseReason] = []
        self.denied: list[tuple[str, bytes]] = []
        self.traces: list[MessageTrace] = []
        self.login: Login | None = None
        """What to admit at once; None: later."""

    def info(self, session: PortSession) -> dict[str, Any]:
        return {"server_id": "S", "client_id": session.client_id}

    def log_in(self, session: PortSession, options: Mapping[str, Any]) -> None:
        self.logins.append(options)
        if self.login is not None:
            admit(session, self.login)

    def close(self, session: PortSession, reason: CloseReason) -> None:
        if not self.closed:
            session.connection.suspend()
        self.closed.append(reason)

    def become_link(self, session: PortSession, asked: object) -> bool:
        return False

    def publish_trace(self, session: PortSession, trace: MessageTrace) -> None:
        self.traces.append(trace)

    def publish_denied(self, stream: str, reply: bytes) -> None:
        self.denied.append((stream, reply))


class Client:
    """A session, and its client's bytes."""

    def __init__(self, *, login_required: bool = False, subscriptions_max: int = 100) -> None:
        self.server = Server()
        self.router = Router()
        self.connection = ClientConnection(self.router, line_bytes_max=1_024, payload_bytes_max=100)
        self.session = PortSession(
            self.connection,
            self.server,
            client_id=7,
            host="127.0.0.1",
            login_required=login_required,
            subscriptions_max=subscriptions_max,
        )

    def said(self, data: bytes) -> bytes:
        """What the client is sent when it says this."""
        self.connection.feed(data)
        return self.connection.take_output()


@pytest.fixture
def client() -> Client:
    return Client()


@pytest.fixture
def guarded() -> Client:
    return Client(login_required=True)


def info_of(line: bytes) -> dict[str, Any]:
    assert line.startswith(b"INFO ") and line.endswith(b"\r\n")
    found: dict[str, Any] = json.loads(line[5:])
    return found


# Without a login


def test_server_speaks_first(client: Client) -> None:
    client.session.greet()
    assert info_of(client.said(b"")) == {"server_id": "S", "client_id": 7}


def test_client_may_publish_before_its_connect_and_counts_as_verbose(client: Client) -> None:
    assert not client.session.awaits_login
    assert client.said(b"SUB a 1\r\nPUB a 1\r\nx\r\n") == b"+OK\r\n+OK\r\nMSG a 1 1\r\nx\r\n"


def test_connect_is_answered_where_the_client_is_verbose(client: Client) -> None:
    assert client.said(b"CONNECT {}\r\n") == b"+OK\r\n"
    assert client.said(QUIET) == b""
    assert client.said(b'CONNECT {"verbose":true}\r\n') == b"+OK\r\n"


def test_second_connect_ends_what_the_first_subscribed_to(client: Client) -> None:
    client.said(QUIET + b"SUB a 1\r\nSUB b q 2\r\n" + QUIET)
    assert client.connection.subscriptions == {}
    assert len(client.router) == 0
    assert client.said(b"PUB a 1\r\nx\r\nSUB c 1\r\nPUB c 1\r\ny\r\n") == b"MSG c 1 1\r\ny\r\n"


def test_first_connect_keeps_what_was_subscribed_to_before(client: Client) -> None:
    client.said(b"SUB a 1\r\n")
    assert client.said(QUIET + b"PUB a 1\r\nx\r\n") == b"MSG a 1 1\r\nx\r\n"


@pytest.mark.parametrize(
    "options",
    [
        b"",
        b"{",
        b"{x}",
        b"[]",
        b"1",
        b'"x"',
        b"null",
        b"{} {}",
        b"{" * 500,
        b"[" * 400,
        b'{"verbose":1}',
        b'{"echo":"no"}',
        b'{"headers":[]}',
        b'{"name":1}',
        b'{"lang":{}}',
        b'{"version":1.5}',
        b'{"protocol":"1"}',
        b'{"protocol":1.0}',
        b'{"protocol":true}',
        b'{"protocol":false}',
        b'{"user":1}',
        b'{"pass":["x"]}',
        b'{"auth_token":{"x":1}}',
        b'{"jwt":7}',
        b'{"nkey":true}',
        b'{"sig":1}',
    ],
)
def test_connect_that_is_none_ends_the_connection_without_a_word(
    client: Client, options: bytes
) -> None:
    assert client.said(b"CONNECT %b\r\nPING\r\n" % options) == b""
    assert client.server.closed == [CloseReason.PROTOCOL]
    assert not client.session.has_connected


@pytest.mark.parametrize("number", [b"-1", b"2", b"99999999999999999999"])
def test_connect_of_another_protocol_is_refused(client: Client, number: bytes) -> None:
    said = client.said(b'CONNECT {"verbose":true,"protocol":%b}\r\n' % number)
    assert said == b"-ERR 'invalid client protocol'\r\n"
    assert client.server.closed == [CloseReason.PROTOCOL]


def test_no_responders_needs_headers(client: Client) -> None:
    said = client.said(b'CONNECT {"no_responders":true}\r\n')
    assert said == b"-ERR 'no responders requires headers support'\r\n"
    assert client.server.closed == [CloseReason.PROTOCOL]


def test_name_and_language_are_what_the_client_calls_itself(client: Client) -> None:
    client.said(b'CONNECT {"name":"orders","lang":"python3","version":"2.9"}\r\n')
    assert (client.session.name, client.session.language) == ("orders", "python3 2.9")


def test_name_is_cut_and_may_be_any_bytes(client: Client) -> None:
    client.said(b'CONNECT {"name":"\xff%b"}\r\n' % (b"x" * 900))
    assert len(client.session.name) == NAME_CHARS_MAX
    assert client.session.name.startswith("�x")
    assert client.server.closed == []


# PING


def test_first_ping_after_connect_brings_an_info_once(client: Client) -> None:
    pong, *rest = client.said(QUIET + b"PING\r\n").splitlines(keepends=True)
    assert pong == b"PONG\r\n"
    assert [info_of(line)["connect_info"] for line in rest] == [True]
    assert client.said(b"PING\r\nPING\r\n") == b"PONG\r\nPONG\r\n"


def test_ping_before_connect_brings_no_info(client: Client) -> None:
    assert client.said(b"PING\r\n") == b"PONG\r\n"
    assert len(client.said(QUIET + b"PING\r\n").splitlines()) == 2


def test_news_wait_for_the_first_pong(client: Client) -> None:
    """nats-py takes the first line after its PING for the PONG, and is silent for ever after another."""
    client.session.tell_info()
    assert client.said(b"") == b""
    assert client.said(QUIET) == b""
    client.session.tell_info(ldm=True)
    assert client.said(b"") == b""
    pong, news = client.said(b"PING\r\n").splitlines(keepends=True)
    assert pong == b"PONG\r\n"
    assert info_of(news)["connect_info"] is True
    client.session.tell_info(ldm=True)
    assert info_of(client.said(b""))["ldm"] is True


def test_client_of_protocol_0_gets_no_info_after_its_connect(client: Client) -> None:
    assert client.said(b'CONNECT {"verbose":false}\r\nPING\r\n') == b"PONG\r\n"
    client.session.tell_info(ldm=True)
    assert client.said(b"") == b""


def test_client_that_answers_no_ping_is_stale(client: Client) -> None:
    client.said(QUIET)
    for _ in range(PINGS_UNANSWERED_MAX):
        client.session.ping()
        assert client.said(b"") == b"PING\r\n"
    client.session.ping()
    assert client.said(b"") == b"-ERR 'Stale Connection'\r\n"
    assert client.server.closed == [CloseReason.STALE]


def test_pong_begins_the_count_of_pings_again(client: Client) -> None:
    client.said(QUIET)
    for _ in range(3 * PINGS_UNANSWERED_MAX):
        client.session.ping()
        assert client.said(b"PONG\r\n") == b"PING\r\n"
        assert client.session.pings_unanswered == 0
    assert client.server.closed == []


# With a login


@pytest.mark.parametrize(
    "said", [b"PING\r\n", b"SUB a 1\r\n", b"PUB a 0\r\n\r\n", b"\r\n", b"X\r\n"]
)
def test_client_that_must_log_in_may_say_nothing_before(guarded: Client, said: bytes) -> None:
    assert guarded.session.awaits_login
    assert guarded.said(said) == b"-ERR 'Authorization Violation'\r\n"
    assert guarded.server.closed == [CloseReason.LOGIN]
    assert len(guarded.router) == 0


def test_login_is_asked_with_all_options(guarded: Client) -> None:
    guarded.said(b'CONNECT {"user":"ann","pass":"secret","more":[1]}\r\n')
    assert guarded.server.logins == [{"user": "ann", "pass": "secret", "more": [1]}]
    assert guarded.session.awaits_login


@pytest.mark.parametrize("cut", range(0, 40, 3))
def test_what_comes_while_a_login_is_checked_waits(guarded: Client, cut: int) -> None:
    rest = b"SUB a 1\r\nPUB a 5\r\nhello\r\nPING\r\n"
    assert guarded.said(QUIET + rest[:cut]) == b""
    assert guarded.said(rest[cut:]) == b""
    assert len(guarded.router) == 0
    admit(guarded.session, Login("ann"))
    said = guarded.said(b"PING\r\n").splitlines(keepends=True)
    assert [line for line in said if not line.startswith(b"INFO ")] == [
        b"MSG a 1 5\r\n", b"hello\r\n", b"PONG\r\n", b"PONG\r\n"
    ]  # fmt: skip
    assert user_of(guarded.session) == "ann"


def test_what_waits_for_a_login_has_a_limit(guarded: Client) -> None:
    guarded.connection.feed(QUIET)
    for _ in range(4):
        guarded.connection.feed(b"x" * 262_144)
    assert guarded.server.closed == []
    guarded.connection.feed(b"x")
    assert guarded.server.closed == [CloseReason.PROTOCOL]


def test_login_that_is_right_at_once_goes_on_within_the_same_bytes(guarded: Client) -> None:
    guarded.server.login = Login("ann")
    assert guarded.said(QUIET + b"SUB a 1\r\nPUB a 1\r\nx\r\n") == b"MSG a 1 1\r\nx\r\n"


def test_violation_that_waited_is_told_after_the_login(guarded: Client) -> None:
    assert guarded.said(QUIET + b"NONSENSE\r\nPING\r\n") == b""
    admit(guarded.session, Login())
    assert guarded.said(b"") == b"-ERR 'Unknown Protocol Operation'\r\n"
    assert guarded.server.closed == [CloseReason.PROTOCOL]


def test_login_that_is_wrong_carries_nothing_out(guarded: Client) -> None:
    guarded.said(QUIET + b"SUB a 1\r\nPUB a 0\r\n\r\n")
    guarded.session.refuse()
    assert guarded.said(b"PING\r\n") == b"-ERR 'Authorization Violation'\r\n"
    assert guarded.server.closed == [CloseReason.LOGIN]
    assert len(guarded.router) == 0
    assert guarded.session.awaits_login


@pytest.mark.parametrize("is_right", [True, False])
def test_login_decided_after_the_client_has_gone_does_nothing(
    guarded: Client, is_right: bool
) -> None:
    guarded.said(QUIET)
    guarded.connection.close()
    if is_right:
        admit(guarded.session, Login("ann"))
    else:
        guarded.session.refuse()
    assert user_of(guarded.session) is None
    assert guarded.server.closed == []


def test_second_connect_logs_in_again_and_what_was_allowed_before_ends(guarded: Client) -> None:
    guarded.server.login = Login("ann")
    guarded.said(QUIET + b"SUB a 1\r\n")
    guarded.server.login = None
    assert guarded.said(QUIET + b"SUB b 2\r\nPUB a 0\r\n\r\n") == b""
    assert guarded.session.awaits_login
    assert len(guarded.router) == 0
    admit(guarded.session, Login("bob", Access()))
    assert user_of(guarded.session) == "bob"
    assert guarded.said(b"PUB b 0\r\n\r\nPUB no 0\r\n\r\n") == (
        b"MSG b 2 0\r\n\r\n-ERR 'Permissions Violation for Publish to \"no\"'\r\n"
    )


def test_second_login_of_more_rights_lifts_what_the_first_was_denied(guarded: Client) -> None:
    guarded.server.login = Login("bob", Access())
    assert b"-ERR" in guarded.said(QUIET + b"PUB no 0\r\n\r\n")
    guarded.server.login = Login("ann")
    assert guarded.said(QUIET + b"SUB no 1\r\nPUB no 0\r\n\r\n") == b"MSG no 1 0\r\n\r\n"


def test_second_login_of_fewer_rights_ends_what_the_first_was_allowed(guarded: Client) -> None:
    guarded.server.login = Login("ann")
    assert guarded.said(QUIET + b"PUB no 0\r\n\r\nPUB no 0\r\n\r\n") == b""
    guarded.server.login = Login("bob", Access())
    assert guarded.said(QUIET + b"PUB no 0\r\n\r\n") == (
        b"-ERR 'Permissions Violation for Publish to \"no\"'\r\n"
    )


def traced(
    destination: bytes, subject: bytes, reply: bytes = b"", *, is_only: bool = False
) -> bytes:
    head = b"NATS/1.0\r\nNats-Trace-Dest: %b\r\n" % destination
    head += b"Nats-Trace-Only: 1\r\n\r\n" if is_only else b"\r\n"
    fields = b" ".join(filter(None, (subject, reply, b"%d" % len(head), b"%d" % len(head))))
    return b"HPUB %b\r\n%b\r\n" % (fields, head)


WITH_HEADERS = QUIET.replace(b"}", b',"headers":true}')


@pytest.mark.parametrize("is_only", [False, True])
def test_message_with_a_trace_that_the_client_may_not_publish_goes_nowhere(
    guarded: Client, is_only: bool
) -> None:
    guarded.server.login = Login("bob", Access())
    guarded.said(WITH_HEADERS + b"SUB a 1\r\n")
    assert guarded.said(traced(b"no.traces", b"a", is_only=is_only)) == (
        b"-ERR 'Permissions Violation for Publish to \"no.traces\"'\r\n"
    )
    assert guarded.server.traces == []


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (b"", 'Permissions Violation for Publish to "no"'),
        (b"$JS.ACK.x", 'Permissions Violation for Publish with Reply of "$JS.ACK.x"'),
        (b"no.reply", 'Permissions Violation for Publish to "no.reply"'),
    ],
)
def test_trace_has_why_its_message_may_not_be_published(
    guarded: Client, reply: bytes, words: str
) -> None:
    guarded.server.login = Login("bob", Access())
    guarded.said(WITH_HEADERS + b"SUB a 1\r\n")
    guarded.said(traced(b"traces", b"a" if reply else b"no", reply))
    (trace,) = guarded.server.traces
    assert (trace.deliveries.refusal, trace.deliveries.deliveries) == (words, [])


def test_login_that_takes_too_long_ends_the_connection(guarded: Client) -> None:
    guarded.session.give_up_login()
    assert guarded.said(b"") == b"-ERR 'Authentication Timeout'\r\n"
    assert guarded.server.closed == [CloseReason.LOGIN]


@pytest.mark.parametrize("is_at_once", [True, False])
def test_second_login_is_not_allowed_what_the_first_was(guarded: Client, is_at_once: bool) -> None:
    """Also within the bytes that bring it; and the rules have not changed meanwhile."""
    guarded.server.login = Login("ann")
    assert guarded.said(QUIET) == guarded.said(b"PUB no 0\r\n\r\n") == b""
    guarded.server.login = Login("bob", Access()) if is_at_once else None
    said = guarded.said(QUIET + b"PUB no 0\r\n\r\n")
    if not is_at_once:
        assert said == b""
        admit(guarded.session, Login("bob", Access()))
        said = guarded.said(b"")
    assert b"Permissions Violation" in said
    assert b"Permissions Violation" in guarded.said(b"PUB no 0\r\n\r\n")


# What a login may do


@pytest.fixture
def bob(guarded: Client) -> Client:
    guarded.server.login = Login("bob", Access())
    assert guarded.said(b'CONNECT {"verbose":true,"pedantic":false}\r\n') == b"+OK\r\n"
    return guarded


def test_publication_that_is_denied_is_told_and_goes_nowhere(bob: Client) -> None:
    bob.said(b"SUB > 1\r\n")
    said = bob.said(b"PUB no.x reply 1\r\nx\r\nPING\r\n")
    assert said == b"-ERR 'Permissions Violation for Publish to \"no.x\"'\r\nPONG\r\n"
    assert bob.server.denied == []
    bob.said(b"PUB no.stream 0\r\n\r\nPUB no.stream reply 0\r\n\r\n")
    assert bob.server.denied == [("guarded", b"reply")]
    assert bob.server.closed == []


def test_subscription_that_is_denied_is_told_and_is_none(bob: Client) -> None:
    assert bob.said(b"SUB no 1\r\nSUB a no 2\r\nSUB a yes 3\r\n") == (
        b"-ERR 'Permissions Violation for Subscription to \"no\"'\r\n"
        b'-ERR \'Permissions Violation for Subscription to "a" using queue "no"\'\r\n'
        b"+OK\r\n"
    )
    assert list(bob.connection.subscriptions) == [b"3"]


def test_delivery_that_is_denied_is_left_out(bob: Client) -> None:
    bob.said(b"SUB secret.> 1\r\n")
    assert bob.said(b"PUB secret.x 0\r\n\r\nPUB secret.y 0\r\n\r\n") == (
        b"+OK\r\n+OK\r\nMSG secret.y 1 0\r\n\r\n"
    )


def test_subject_with_control_characters_breaks_no_line_of_an_error(bob: Client) -> None:
    said = bob.said(b"PUB no\r\x00\x1b 0\r\n\r\n")
    assert said.count(b"\r") == 1
    assert said.endswith(b"\r\n")


def test_limits_of_a_login_hold_where_they_are_lower(guarded: Client) -> None:
    guarded.server.login = Login(limits=PortLimits(subscriptions_max=2, payload_bytes_max=5))
    guarded.said(QUIET)
    assert guarded.said(b"SUB a 1\r\nSUB a 2\r\nSUB a 3\r\n") == (
        b"-ERR 'maximum subscriptions exceeded'\r\n"
    )
    assert guarded.said(b"PUB x 6\r\n") == b"-ERR 'Maximum Payload Violation'\r\n"
    assert guarded.server.closed == [CloseReason.PROTOCOL]


def test_limits_of_a_login_lift_none_of_the_port(guarded: Client) -> None:
    guarded.server.login = Login(
        limits=PortLimits(subscriptions_max=1_000_000, payload_bytes_max=1_000_000)
    )
    guarded.said(QUIET)
    assert guarded.connection.payload_bytes_max == 100
    assert guarded.said(b"PUB x 101\r\n") == b"-ERR 'Maximum Payload Violation'\r\n"


# Limits


def test_subscriptions_beyond_the_maximum_are_refused_until_one_ends() -> None:
    client = Client(subscriptions_max=2)
    client.said(QUIET)
    refused = b"-ERR 'maximum subscriptions exceeded'\r\n"
    assert client.said(b"SUB a 1\r\nSUB b 2\r\nSUB c 3\r\n") == refused
    assert client.said(b"UNSUB 1\r\nSUB c 3\r\nSUB d 4\r\n") == refused
    assert sorted(client.connection.subscriptions) == [b"2", b"3"]


def test_subject_that_is_none_is_told_and_the_connection_goes_on(client: Client) -> None:
    client.said(QUIET)
    assert client.said(b"SUB a..b 1\r\nPING\r\n").startswith(b"-ERR 'Invalid Subject'\r\nPONG\r\n")
    assert client.server.closed == []


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (b"NONSENSE\r\n", "Unknown Protocol Operation"),
        (b"SUB %b 1\r\n" % (b"x" * 1_100), "maximum control line exceeded"),
        (b"SUB %b" % (b"x" * 1_100), "maximum control line exceeded"),
        (b"PUB x 101\r\n", "Maximum Payload Violation"),
        (b"PUB x 1\r\nxyz", "Unknown Protocol Operation"),
    ],
)
def test_what_ends_a_connection_is_told(client: Client, said: bytes, words: str) -> None:
    client.said(QUIET)
    assert client.said(said) == f"-ERR '{words}'\r\n".encode()
    assert client.server.closed == [CloseReason.PROTOCOL]
    assert client.said(b"PING\r\n") == b""


def test_client_that_reads_too_slowly_is_closed(client: Client) -> None:
    client.connection.pending_bytes_max = 1_000
    client.connection.feed(QUIET + b"SUB a 1\r\n")
    for _ in range(20):
        client.router.publish(b"a", bytes(100))
    assert CloseReason.SLOW in client.server.closed


def test_broken_socket_closes_without_a_word(client: Client) -> None:
    client.session.broken(OSError())
    assert client.server.closed == [CloseReason.SOCKET]
    assert client.said(b"") == b""


class GuardedBucket(AllAccess):
    """The stream of one bucket is for nobody; its subject with a domain before it is no stream's."""

    def may_publish(self, subject: bytes) -> bool:
        return self.unwritable(subject) is None

    def unwritable(self, subject: bytes) -> str | None:
        return "KV_b" if subject.startswith(b"$KV.b.") else None


def test_message_to_a_bucket_of_the_domain_needs_the_rights_to_the_bucket(guarded: Client) -> None:
    guarded.connection.domain_prefix = b"$JS.d.API."
    guarded.server.login = Login("bob", GuardedBucket())
    said = guarded.said(QUIET + b"SUB $KV.> 1\r\nPUB $JS.d.API.$KV.b.k _INBOX.1 1\r\nx\r\n")
    assert said == b"-ERR 'Permissions Violation for Publish to \"$KV.b.k\"'\r\n"
    assert guarded.server.denied == [("KV_b", b"_INBOX.1")]
    assert guarded.said(b"PUB $JS.d.API.$KV.c.k 1\r\nx\r\n") == b"MSG $KV.c.k 1 1\r\nx\r\n"
    assert guarded.said(b"PUB $JS.other.API.$KV.c.k 1\r\nx\r\n") == b""
