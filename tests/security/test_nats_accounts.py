"""Who asks, as nats-server itself reports it where a request comes from another account."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.msg import Msg

from streamlog.acl.rules import RuleBook
from streamlog.authz.service import AuthorizationService
from streamlog.authz.signature import KEY, sign
from streamlog.config import AuthorizationSection
from streamlog.errors import AuthenticationFailed
from streamlog.jetstream.auth.identity import REQUEST_INFO, RequestIdentities
from streamlog.jetstream.connection import Request, RouterConnection
from streamlog.nats.router import Router
from tests.restricted import Heard
from tests.secured_nats import user_key
from tools.nodes.server_process import NatsServer

SUBJECT = "$JS.streamlog.API.INFO"
CONFIG = """
accounts {
  LOG { users: [{user: log, password: p}, {user: inside, password: p}]
        exports: [{service: "$JS.streamlog.API.>"}] }
  APP { users: [{user: alice, password: p}, {user: bob, password: p}]
        imports: [{service: {account: LOG, subject: "$JS.streamlog.API.>"}, share: true}] }
  SHY { users: [{user: carol, password: p}]
        imports: [{service: {account: LOG, subject: "$JS.streamlog.API.>"}}] }
}
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsServer]:
    server = NatsServer(tmp_path)
    config = tmp_path / "accounts.conf"
    config.write_text(CONFIG)
    server.command += ["-c", str(config)]
    server.start()
    yield server
    server.kill()


def identity(**settings: Any) -> RequestIdentities:
    section = AuthorizationSection(**settings)
    authorization = AuthorizationService(section, RuleBook, Heard(), enforced=True)
    return RequestIdentities(authorization, section)


def with_headers(headers: dict[str, str], reply: str = "reply") -> Request:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    block = f"NATS/1.0\r\n{lines}\r\n".encode()
    connection = RouterConnection(Router(), payload_bytes_max=1)
    return Request(SUBJECT, reply, b"", block, connection=connection)


@pytest.fixture
async def heard(server: NatsServer) -> AsyncIterator[Callable[..., Any]]:
    """What a user's request is when it comes to us."""
    ours = await nats.connect(server.url, user="log", password="p")
    came: asyncio.Queue[Msg] = asyncio.Queue()
    await ours.subscribe("$JS.streamlog.API.>", cb=came.put)
    await ours.flush()

    async def ask(user: str, **headers: str) -> Request:
        theirs = await nats.connect(server.url, user=user, password="p")
        try:
            await theirs.publish(SUBJECT, b"", reply="reply", headers=headers or None)
            await theirs.flush()
            async with asyncio.timeout(10):
                message = await came.get()
                return with_headers(message.headers or {}, message.reply)
        finally:
            await theirs.close()

    yield ask
    await ours.close()


async def test_an_import_that_shares_tells_the_user(heard: Callable[..., Any]) -> None:
    known = identity(nats_request_info=True)
    for user in ("alice", "bob"):
        session = known.of_client(await heard(user)).session
        assert str(session.principal) == f"Nats:APP/{user}"


async def test_what_a_user_forges_is_overwritten(heard: Callable[..., Any]) -> None:
    forged = json.dumps({"acc": "APP", "user": "bob"})
    message = await heard("alice", **{REQUEST_INFO: forged})
    session = identity(nats_request_info=True).of_client(message).session
    assert str(session.principal) == "Nats:APP/alice"


async def test_an_import_that_does_not_share_tells_the_account(heard: Callable[..., Any]) -> None:
    session = identity(nats_request_info=True).of_client(await heard("carol")).session
    assert str(session.principal) == "Nats:SHY"


async def test_who_is_in_the_account_itself_could_forge(heard: Callable[..., Any]) -> None:
    """Hence it has to be asked for, and nobody else may publish there."""
    forged = json.dumps({"acc": "APP", "user": "bob"})
    message = await heard("inside", **{REQUEST_INFO: forged})
    assert str(identity().of_client(message).session.principal) == "User:ANONYMOUS"
    believed = identity(nats_request_info=True).of_client(message).session
    assert str(believed.principal) == "Nats:APP/bob"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"user":"bob"}', '{"acc":7}', '{"acc":""}'])
def test_what_tells_no_account_is_refused(text: str) -> None:
    message = with_headers({REQUEST_INFO: text})
    with pytest.raises(AuthenticationFailed):
        identity(nats_request_info=True).of_client(message)


def test_an_account_is_no_user_whatever_it_is_called() -> None:
    def principal(**info: str) -> str:
        message = with_headers({REQUEST_INFO: json.dumps(info)})
        return str(identity(nats_request_info=True).of_client(message).session.principal)

    assert principal(acc="admin") == "Nats:admin"
    assert principal(acc="a/b") != principal(acc="a", user="b")
    assert principal(acc="a%2Fb") != principal(acc="a/b")


async def test_a_reply_subject_that_nats_has_changed_is_compared_unless_told_not_to(
    heard: Callable[..., Any],
) -> None:
    """Between accounts nats-server makes up a reply subject of its own."""
    key = user_key()

    def signed() -> dict[str, str]:
        now_ms = time.time_ns() // 1_000_000
        return sign({KEY: key.public}, SUBJECT, b"", key.sign, now_ms=now_ms, reply="reply")

    inside = await heard("inside", **signed())
    assert identity().of_client(inside).session.principal.name == key.public
    message = await heard("alice", **signed())
    assert message.reply != "reply"
    with pytest.raises(AuthenticationFailed, match="check_reply_subject"):
        identity().of_client(message)
    told = identity(check_reply_subject=False).of_client(message)
    assert told.session.principal.name == key.public
