"""Who is let in, and what they may do, as a real nats-server decides it about the same credentials."""

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from streamlog.nats.auth import err
from streamlog.nats.auth.port_authenticator import AdmittedClient
from tests.nats_jwts import (
    HEADER,
    UNLIMITED,
    AccountJwt,
    JwtLogin,
    PlainConnection,
    account_key,
    base64url,
    operator_jwt,
    operator_key,
    signed_jwt,
    user_jwt,
)
from tests.port_world import PortWorld
from tests.secured_nats import ConfiguredNats, KeyPair, user_key

NOW: Final = int(time.time())
HOUR: Final = 3_600


def clock(offset_s: int) -> str:
    return time.strftime("%H:%M:%S", time.gmtime(NOW + offset_s))


class Operators:
    """One that is trusted with accounts of all kinds, and one that is not."""

    def __init__(self) -> None:
        self.key, self.signing, self.stranger = operator_key(), operator_key(), operator_key()
        self.plain = AccountJwt()
        self.by_signing_key = AccountJwt()
        self.expired = AccountJwt(claims={"exp": NOW - 10})
        self.too_early = AccountJwt(claims={"nbf": NOW + HOUR})
        self.expiring = AccountJwt(claims={"exp": NOW + HOUR})
        self.untrusted = AccountJwt()
        self.self_signed = AccountJwt()
        self.no_bearers = AccountJwt({"limits": {**UNLIMITED, "conn": -1, "disallow_bearer": True}})
        self.revoked = user_key()
        self.revoking = AccountJwt({"revocations": {self.revoked.public: NOW - 100}})
        self.revoking_all = AccountJwt({"revocations": {"*": NOW - 100}})
        self.limited = AccountJwt({"limits": {"subs": 5, "payload": 100, "conn": -1, "data": -1}})
        self.signer, self.scoped = account_key(), account_key()
        self.bearer_scope, self.template = account_key(), account_key()
        scopes = [
            self.signer.public,
            scope(self.scoped, {"pub": {"allow": ["a.>"]}, "sub": {"deny": ["a.secret"]}}),
            scope(self.bearer_scope, {"bearer_token": True, "subs": 3}),
            scope(
                self.template,
                {
                    "pub": {"allow": ["u.{{name()}}.>", "t.{{tag(team)}}", "x.{{tag(none)}}"]},
                    "sub": {"allow": ["k.{{subject()}}", "{{account-name()}}.{{account-tag(zone)}}"]},
                },
            ),
        ]  # fmt: skip
        self.signers = AccountJwt({"signing_keys": scopes, "tags": ["zone:eu"]}, {"name": "acme"})
        self.defaulting = AccountJwt(
            {"default_permissions": {"pub": {"deny": ["a.>"]}, "sub": {"allow": ["b.>"]}}}
        )

    def accounts(self) -> dict[str, str]:
        """Their JWTs by their keys."""
        signed: list[tuple[AccountJwt, KeyPair]] = [
            (it, self.key)
            for it in (
                self.plain, self.expired, self.too_early, self.expiring, self.no_bearers,
                self.revoking, self.revoking_all, self.limited, self.signers, self.defaulting,
            )
        ]  # fmt: skip
        signed += [
            (self.by_signing_key, self.signing),
            (self.untrusted, self.stranger),
            (self.self_signed, self.self_signed.key),
        ]
        return {account.key.public: account.jwt(operator) for account, operator in signed}

    @property
    def operator(self) -> str:
        return operator_jwt(self.key, signing_keys=[self.signing.public])

    def config(self) -> str:
        preload = "\n".join(f"{key}: {jwt}" for key, jwt in self.accounts().items())
        return (
            f"operator: {self.operator}\nresolver: MEMORY\nresolver_preload: {{\n{preload}\n}}\n"
            "max_control_line: 64KB\n"
        )


def scope(key: KeyPair, template: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "user_scope", "key": key.public, "role": "r", "template": template}


OPERATORS: Final = Operators()
PLAIN: Final = OPERATORS.plain.key


def user(
    account: AccountJwt = OPERATORS.plain,
    nats: dict[str, Any] | None = None,
    *,
    key: KeyPair | None = None,
    signer: KeyPair | None = None,
    **claims: Any,
) -> JwtLogin:
    key = key or user_key()
    content = {**UNLIMITED, **(nats or {})}
    return JwtLogin(user_jwt(signer or account.key, key, content, **claims), key)


def scoped(key: KeyPair, nats: dict[str, Any] | None = None, **claims: Any) -> JwtLogin:
    """Of the account with signing keys."""
    own = user_key()
    content = {"issuer_account": OPERATORS.signers.key.public, **(nats or {})}
    return JwtLogin(user_jwt(key, own, content, **claims), own)


def without_signature(login: JwtLogin) -> JwtLogin:
    return JwtLogin(login.jwt, None)


def signed_by_another_key(login: JwtLogin) -> JwtLogin:
    return JwtLogin(login.jwt, user_key())


def with_signature(login: JwtLogin, sig: str) -> JwtLogin:
    return JwtLogin(login.jwt, None, {"sig": sig})


def tampered(login: JwtLogin) -> JwtLogin:
    header, payload, signature = login.jwt.split(".")
    other = user(OPERATORS.plain).jwt.split(".")[1]
    return JwtLogin(f"{header}.{other}.{signature}", login.key, {"name": payload[:5]})


def under_header(**header: Any) -> JwtLogin:
    key = user_key()
    jwt = signed_jwt(PLAIN, key.public, {"type": "user", **UNLIMITED}, header={**HEADER, **header})
    return JwtLogin(jwt, key)


def of_version(version: int) -> JwtLogin:
    return user(nats={"version": version})


def claiming(issuer: KeyPair, signer: KeyPair) -> JwtLogin:
    key = user_key()
    jwt = signed_jwt(signer, key.public, {"type": "user", **UNLIMITED}, issuer=issuer.public)
    return JwtLogin(jwt, key)


def for_another_subject() -> JwtLogin:
    """The subject is an account's key."""
    key = user_key()
    return JwtLogin(signed_jwt(PLAIN, PLAIN.public, {"type": "user", **UNLIMITED}), key)


CREDENTIALS: Final[dict[str, JwtLogin]] = {
    "a user": user(),
    "a user until later": user(exp=NOW + HOUR),
    "a user from earlier on": user(nbf=NOW - HOUR),
    "a user that has expired": user(exp=NOW - 10),
    "a user that is too early": user(nbf=NOW + HOUR),
    "without a signature": without_signature(user()),
    "with another key's signature": signed_by_another_key(user()),
    "with a signature that is no base64": with_signature(user(), "***"),
    "with an empty signature": with_signature(user(), ""),
    "with a short signature": with_signature(user(), base64url(b"short")),
    "with another token's signature": tampered(user()),
    "an account signed by a signing key": user(OPERATORS.by_signing_key),
    "an account that has expired": user(OPERATORS.expired),
    "an account that is too early": user(OPERATORS.too_early),
    "an account that will expire": user(OPERATORS.expiring),
    "an account of another operator": user(OPERATORS.untrusted),
    "an account that signed itself": user(OPERATORS.self_signed),
    "an account that is not known": user(AccountJwt()),
    "a user signed by a user": claiming(user_key(), PLAIN),
    "a user signed by the operator": user(signer=OPERATORS.key),
    "signed by another than it names": claiming(PLAIN, account_key()),
    "for another subject": for_another_subject(),
    "a bearer": without_signature(user(nats={"bearer_token": True})),
    "a bearer with a wrong signature": signed_by_another_key(user(nats={"bearer_token": True})),
    "a bearer where none may be": without_signature(
        user(OPERATORS.no_bearers, {"bearer_token": True})
    ),
    "a signer where no bearer may be": user(OPERATORS.no_bearers),
    "revoked": user(OPERATORS.revoking, key=OPERATORS.revoked, iat=NOW - 200),
    "issued again after its revocation": user(OPERATORS.revoking, key=OPERATORS.revoked),
    "beside one that is revoked": user(OPERATORS.revoking, iat=NOW - 200),
    "revoked with all": user(OPERATORS.revoking_all, iat=NOW - 200),
    "revoked in the same second": user(OPERATORS.revoking_all, iat=NOW - 100),
    "issued after all were revoked": user(OPERATORS.revoking_all, iat=NOW - 99),
    "by a signing key": scoped(OPERATORS.signer, UNLIMITED),
    "by a signing key without its account": user(OPERATORS.signers, signer=OPERATORS.signer),
    "by another account's signing key": user(
        nats={"issuer_account": PLAIN.public}, signer=OPERATORS.signer
    ),
    "by a key that names another account": scoped(PLAIN, UNLIMITED),
    "by a scoped key": scoped(OPERATORS.scoped),
    "by a scoped key, with limits of its own": scoped(OPERATORS.scoped, UNLIMITED),
    "by a scoped key, with permissions of its own": scoped(
        OPERATORS.scoped, {"pub": {"allow": ["z"]}}
    ),
    "by a scoped key, with an empty list of its own": scoped(
        OPERATORS.scoped, {"pub": {"allow": []}}
    ),
    "by a scoped key for bearers": without_signature(scoped(OPERATORS.bearer_scope)),
    "by a key with a template": scoped(OPERATORS.template, {"tags": ["team:red", "team:blue"]}),
    "by a key with a template, without tags": scoped(OPERATORS.template),
    "for this type of connection": user(nats={"allowed_connection_types": ["standard", "MQTT"]}),
    "for other types of connections": user(nats={"allowed_connection_types": ["WEBSOCKET"]}),
    "for an unknown type and this one": user(
        nats={"allowed_connection_types": ["TELEGRAPH", "STANDARD"]}
    ),
    "for an unknown type only": user(nats={"allowed_connection_types": ["TELEGRAPH"]}),
    "from here": user(nats={"src": ["10.0.0.0/8", "127.0.0.0/8"]}),
    "from here, as a text": user(nats={"src": "10.0.0.0/8,127.0.0.1/32"}),
    "from elsewhere": user(nats={"src": ["10.0.0.0/8"]}),
    "from what is no network": user(nats={"src": ["127.0.0.1"]}),
    "at this time": user(
        nats={"times_location": "UTC", "times": [{"start": clock(-600), "end": clock(600)}]}
    ),
    "at another time": user(
        nats={"times_location": "UTC", "times": [{"start": clock(600), "end": clock(1_200)}]}
    ),
    "at what is no time": user(nats={"times": [{"start": "noon", "end": "23:00:00"}]}),
    "at this time of another place": user(
        nats={
            "times_location": "Asia/Tokyo",
            "times": [{"start": clock(9 * HOUR - 600), "end": clock(9 * HOUR + 600)}],
        }
    ),
    "at a place that is not": user(
        nats={"times_location": "Moon/Base", "times": [{"start": "00:00:00", "end": "23:59:59"}]}
    ),
    "with a subject that has a space": user(nats={"pub": {"allow": ["a b"]}}),
    "with a subject that has an empty token": user(nats={"sub": {"deny": ["a..b"]}}),
    "by no algorithm": under_header(alg="none"),
    "by another algorithm": under_header(alg="HS256"),
    "of another type of token": under_header(typ="JWS"),
    "in small letters": under_header(typ="jwt", alg="ED25519-NKEY"),
    "of a later version": of_version(3),
    "of no version": of_version(0),
    "of an account's type": user(nats={"type": "account"}),
    "a token that is none": JwtLogin("a.b.c"),
    "a token with more parts": JwtLogin(user().jwt + ".x"),
    "no token": JwtLogin(""),
}
STRICTER_HERE: Final[dict[str, JwtLogin]] = {
    "by the older name of the algorithm": under_header(alg="ed25519"),
    "with a wildcard that is followed": user(nats={"sub": {"deny": ["a.>.b"]}}),
}
"""What nats-server lets in, and this node does not."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConfiguredNats]:
    found = ConfiguredNats(tmp_path_factory.mktemp("nats"), OPERATORS.config())
    found.start()
    try:
        yield found
    finally:
        found.kill()


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> PortWorld:
    folder = tmp_path_factory.mktemp("accounts")
    for key, jwt in OPERATORS.accounts().items():
        (folder / f"{key}.jwt").write_text(jwt)
    settings = {"operator": OPERATORS.operator, "account_jwts": [str(folder)]}
    return PortWorld(settings, sasl={"failures_per_address_max": 1_000})


def theirs(server: ConfiguredNats, login: JwtLogin) -> bytes | None:
    with PlainConnection(server.host, server.port) as connection:
        return connection.log_in(login.connect(connection.nonce))


def as_sent(words: str) -> bytes:
    return f"'{words}'".encode()


def ours(port: PortWorld, login: JwtLogin) -> bytes | None:
    refusal = asyncio.run(port.refusal(login.connect("nonce"), nonce="nonce"))
    return as_sent(err.AUTHORIZATION_VIOLATION) if refusal else None


@pytest.mark.parametrize("name", CREDENTIALS)
def test_both_decide_the_same(name: str, server: ConfiguredNats, port: PortWorld) -> None:
    login = CREDENTIALS[name]
    assert ours(port, login) == theirs(server, login)


def test_the_table_has_many_of_both_kinds(port: PortWorld) -> None:
    verdicts = [ours(port, it) is None for it in CREDENTIALS.values()]
    assert verdicts.count(True) >= 20
    assert verdicts.count(False) >= 30


@pytest.mark.parametrize("name", STRICTER_HERE)
def test_fewer_are_let_in_here(name: str, server: ConfiguredNats, port: PortWorld) -> None:
    login = STRICTER_HERE[name]
    assert theirs(server, login) is None
    assert ours(port, login) is not None


SUBJECTS: Final = (
    "a", "a.b", "a.secret", "a.b.c", "b", "b.c", "u.test.x", "u.other.x", "t.red", "t.blue",
    "t.green", "x.y", "acme.eu", "acme.us", "z", "q",
)  # fmt: skip
PATTERNS: Final = (*SUBJECTS, ">", "a.>", "*", "*.*", "a.*", "b.>", "*.secret", "acme.*", "u.>")
QUEUES: Final = (None, "q1", "q2", "v1.x")
LISTS: Final[dict[str, dict[str, Any]]] = {
    "nothing": {},
    "allowed to publish": {"pub": {"allow": ["a.*", "b"]}},
    "denied to publish": {"pub": {"deny": ["a.>", "b"]}},
    "both": {"pub": {"allow": ["a.>"], "deny": ["a.secret"]}},
    "an empty list and denials": {"pub": {"allow": [], "deny": ["q"]}},
    "allowed to subscribe": {"sub": {"allow": ["a.*", ">.b", "b.>"][::2]}},
    "denied to subscribe": {"sub": {"deny": ["a.secret", "b.*"]}},
    "queues": {"sub": {"allow": ["a.b q1", "b", "b.c", "b.c q2", "a.* v1.>"]}},
    "denied queues": {"sub": {"deny": ["a.b q1", "b *", "a.* v1.>"]}},
    "answers": {"resp": {"max": 1, "ttl": 0}},
    "answers and more": {"pub": {"allow": ["a"]}, "resp": {"max": 2, "ttl": 1_000_000_000}},
    "everything allowed": {"pub": {"allow": [">"]}, "sub": {"allow": [">"]}},
    "wild": {"pub": {"allow": ["*.*"]}, "sub": {"allow": ["*.*"], "deny": ["*.secret"]}},
}
PERMITTED: Final[dict[str, JwtLogin]] = {
    **{name: user(nats=lists) for name, lists in LISTS.items()},
    "by a scoped key": CREDENTIALS["by a scoped key"],
    "by a template": CREDENTIALS["by a key with a template"],
    "by a template, without tags": CREDENTIALS["by a key with a template, without tags"],
    "the account's": user(OPERATORS.defaulting),
    "its own and not the account's": user(OPERATORS.defaulting, {"pub": {"allow": ["z"]}}),
}


def publish(subject: str, _: str | None) -> bytes:
    return f"PUB {subject} 0\r\n\r\n".encode()


def subscribe(subject: str, queue: str | None) -> bytes:
    named = f"{subject} {queue}" if queue else subject
    return f"SUB {named} 1\r\nUNSUB 1\r\n".encode()


def our_publish(login: AdmittedClient, subject: str, _: str | None) -> list[bytes]:
    data = subject.encode()
    return [] if login.permissions.may_publish(data) else [as_sent(err.publish_violation(data))]


def our_subscription(login: AdmittedClient, subject: str, queue: str | None) -> list[bytes]:
    data, group = subject.encode(), None if queue is None else queue.encode()
    allowed = login.permissions.may_subscribe(data, group)
    return [] if allowed else [as_sent(err.subscription_violation(data, group))]


@pytest.mark.parametrize("name", PERMITTED)
async def test_both_allow_the_same_subjects(
    name: str, server: ConfiguredNats, port: PortWorld
) -> None:
    login = PERMITTED[name]
    mine = await port.log_in(login.connect("nonce"), nonce="nonce")
    tries: list[tuple[Callable[..., bytes], Callable[..., list[bytes]], str, str | None]] = [
        *((publish, our_publish, it, None) for it in SUBJECTS),
        *((subscribe, our_subscription, it, queue) for it in PATTERNS for queue in QUEUES),
    ]
    differences = []
    with PlainConnection(server.host, server.port) as connection:
        assert connection.log_in(login.connect(connection.nonce)) is None
        for request, answer, subject, queue in tries:
            told = list(connection.ask(request(subject, queue)))
            if told != answer(mine, subject, queue):
                differences.append((subject, queue, told))
    assert [it for it in differences if not is_known(mine, *it)] == []


def is_known(login: AdmittedClient, subject: str, queue: str | None, told: list[bytes]) -> bool:
    """nats-server takes ``>`` of a subscription for a token, which ``*`` matches: where ``a.*`` is
    allowed, it lets a client receive ``a.b.c``; where it is denied, it refuses the subscription, of
    which deliveries are dropped here.
    """
    is_refused_here = our_subscription(login, subject, queue) != []
    drops = login.permissions.needs_filter(subject.encode())
    return subject.endswith(">") and told == [] if is_refused_here else drops


@pytest.mark.parametrize("name", ["denied to subscribe", "denied queues", "wild", "nothing"])
@pytest.mark.parametrize("queue", QUEUES)
async def test_both_deliver_the_same(
    name: str, queue: str | None, server: ConfiguredNats, port: PortWorld
) -> None:
    """Of a subscription that overlaps what is denied."""
    login, other = PERMITTED[name], user()
    mine = (await port.log_in(login.connect("nonce"), nonce="nonce")).permissions
    pattern, group = "*.*", None if queue is None else queue.encode()
    with (
        PlainConnection(server.host, server.port) as client,
        PlainConnection(server.host, server.port) as publisher,
    ):
        assert client.log_in(login.connect(client.nonce)) is None
        assert publisher.log_in(other.connect(publisher.nonce)) is None
        named = pattern if queue is None else f"{pattern} {queue}"
        assert client.ask(f"SUB {named} 1\r\n".encode()) == []
        assert publisher.ask(*(publish(it, None) for it in SUBJECTS)) == []
        client.ask()
        expected = {
            data
            for it in SUBJECTS
            if it.count(".") == 1 and not mine.delivery_denies(data := it.encode(), group)
        }
        assert set(client.received) == expected


async def test_limits_are_the_same(server: ConfiguredNats, port: PortWorld) -> None:
    login = user(OPERATORS.limited, {"subs": 7, "payload": -1, "data": -1})
    mine = (await port.log_in(login.connect("nonce"), nonce="nonce")).limits
    assert (mine.subscriptions_max, mine.payload_bytes_max) == (5, 100)
    with PlainConnection(server.host, server.port) as connection:
        assert connection.log_in(login.connect(connection.nonce)) is None
        for number in range(5):
            assert connection.ask(b"SUB s.%d %d\r\n" % (number, number)) == []
        assert connection.ask(b"PUB p 100\r\n%b\r\n" % (b"x" * 100)) == []
        assert connection.ask(b"SUB s.5 5\r\n") == [as_sent(err.SUBSCRIPTIONS_EXCEEDED)]
    with PlainConnection(server.host, server.port) as connection:
        assert connection.log_in(login.connect(connection.nonce)) is None
        assert connection.ask(b"PUB p 101\r\n%b\r\n" % (b"x" * 101)) == [
            as_sent(err.PAYLOAD_EXCEEDED)
        ]


async def test_nats_server_answers_once_as_is_allowed_here(
    server: ConfiguredNats, port: PortWorld, tmp_path: Path
) -> None:
    login = user(nats={"resp": {"max": 2, "ttl": 0}})
    mine = await port.log_in(login.connect("nonce"), nonce="nonce")
    with (
        PlainConnection(server.host, server.port) as service,
        PlainConnection(server.host, server.port) as client,
    ):
        assert service.log_in(login.connect(service.nonce)) is None
        other = user()
        assert client.log_in(other.connect(client.nonce)) is None
        assert service.ask(b"SUB service 1\r\n") == []
        assert client.ask(b"PUB service inbox 0\r\n\r\n") == []
        service.ask()
        mine.permissions.delivered(b"inbox")
        for _ in range(3):
            told = list(service.ask(publish("inbox", None)))
            assert told == our_publish(mine, "inbox", None)
    assert told == [as_sent(err.publish_violation(b"inbox"))]
