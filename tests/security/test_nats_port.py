"""Clients of the NATS port of a guarded node: who they are, and what they may publish, hear and ask."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import nats
import nats.errors
import nats.js.errors
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from tests.guarded_node import ADMIN, GuardedNode
from tests.local_node import until
from tests.nats_jwts import UNLIMITED, AccountJwt, operator_jwt, operator_key, user_jwt
from tests.secured_nats import user_key
from tools.nodes.node_process import NodeProcess

Connect = Callable[..., Any]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedNode]:
    node = GuardedNode(tmp_path_factory.mktemp("port"), "")
    node.add_settings(
        nats={"servers": [], "default_api_prefix": True},
        nats_listen={"login_timeout_ms": 1000},
    )
    try:
        node.start()
        for user in ("alice", "mallory"):
            node.admin("user", "add", user, "--new-password-file", str(node.password_file(user)))
        for operation in ("write", "read", "describe"):
            node.admin("acl", "add", "-p", "User:alice", "-o", operation, "-t", "orders")
        node.admin("stream", "add", "orders", "--subject", "orders.>")
        node.admin("stream", "add", "secret", "--subject", "secret.>")
        yield node
    finally:
        code = node.stop() if node.is_running() else 1
    assert code == 0, node.log_text()


@pytest.fixture
async def connect(node: GuardedNode) -> AsyncIterator[Connect]:
    async with AsyncExitStack() as stack:

        async def connected(user: str | None = None, **options: Any) -> Client:
            if user is not None:
                options = {"user": user, "password": f"{user}-secret", **options}
            client = await nats.connect(node.port_url, allow_reconnect=False, **options)
            stack.push_async_callback(client.close)
            return client

        yield connected


class Complaints(list[str]):
    async def note(self, error: Exception) -> None:
        self.append(str(error))


async def answer_to(node: GuardedNode, said: bytes) -> tuple[dict[str, Any], bytes]:
    """The greeting, and all that comes until the node closes the connection."""
    host, _, port = node.port_url.removeprefix("nats://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    info = json.loads((await reader.readline()).removeprefix(b"INFO "))
    writer.write(said)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return info, answer


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"user": "alice", "pass": "wrong"},
        {"user": "no-one", "pass": "x"},
        {"auth_token": "x"},
        {"nkey": "x", "sig": "x"},
        {"streamlog_link": {"cluster": "x", "node": 2, "token": "x"}},
    ],
)
async def test_a_client_that_proves_nothing_is_refused(
    node: GuardedNode, options: dict[str, Any]
) -> None:
    said = b"CONNECT " + json.dumps(options | {"verbose": False}).encode() + b"\r\nPING\r\n"
    info, answer = await answer_to(node, said)
    assert info["auth_required"] is True
    assert answer == b"-ERR 'Authorization Violation'\r\n"


@pytest.mark.parametrize("said", [b"PING\r\n", b"SUB > 1\r\n", b"PUB orders.1 0\r\n\r\n"])
async def test_nothing_is_carried_out_before_the_login(node: GuardedNode, said: bytes) -> None:
    assert (await answer_to(node, said))[1] == b"-ERR 'Authorization Violation'\r\n"


async def test_a_client_that_does_not_log_in_in_time_is_closed(node: GuardedNode) -> None:
    assert (await answer_to(node, b""))[1] == b"-ERR 'Authentication Timeout'\r\n"


async def test_who_may_write_writes(connect: Connect) -> None:
    alice = await connect("alice")
    assert (await alice.jetstream().publish("orders.1", b"x")).seq >= 1


async def test_what_a_client_says_before_it_leaves_is_carried_out(
    node: GuardedNode, connect: Connect
) -> None:
    admin = await connect(ADMIN)
    before = (await admin.jetstream().stream_info("orders")).state.messages
    said = b'CONNECT {"user":"alice","pass":"alice-secret","verbose":false}\r\n'
    host, _, port = node.port_url.removeprefix("nats://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(said + b"PUB orders.1 1\r\nx\r\n")
    writer.write_eof()
    await reader.read()
    writer.close()
    await writer.wait_closed()
    after = (await admin.jetstream().stream_info("orders")).state.messages
    assert after == before + 1


async def test_who_may_not_write_is_told_at_once(connect: Connect) -> None:
    complaints = Complaints()
    mallory = await connect("mallory", error_cb=complaints.note)
    with pytest.raises(nats.js.errors.APIError, match="not allowed to write to orders"):
        await mallory.jetstream().publish("orders.1", b"x")
    await until(lambda: len(complaints) >= 1)
    assert 'permissions violation for publish to "orders.1"' in complaints[0].lower()
    await mallory.publish("chat", b"of no stream")
    await mallory.flush()


async def test_no_answer_goes_where_its_asker_may_not_publish(connect: Connect) -> None:
    complaints = Complaints()
    alice = await connect("alice", error_cb=complaints.note)
    before = (await (await connect(ADMIN)).jetstream().stream_info("secret")).state.messages
    await alice.publish("orders.1", b"x", reply="secret.1")
    await until(lambda: len(complaints) >= 1)
    assert "secret.1" in complaints[0]
    after = (await (await connect(ADMIN)).jetstream().stream_info("secret")).state.messages
    assert after == before


async def test_who_may_not_read_hears_nothing(node: GuardedNode, connect: Connect) -> None:
    complaints, heard = Complaints(), list[str]()
    mallory, alice = await connect("mallory", error_cb=complaints.note), await connect("alice")

    async def take(message: Msg) -> None:
        heard.append(message.subject)

    for subject in ("orders.>", "orders.1", ">", "*.1"):
        await mallory.subscribe(subject, cb=take)
        await mallory.flush()
    await until(lambda: len(complaints) >= 4)
    assert all("permissions violation for subscription" in text.lower() for text in complaints)
    await mallory.subscribe("later.>", cb=take)
    await mallory.subscribe("chat", cb=take)
    await mallory.flush()
    await asyncio.to_thread(node.admin, "stream", "add", "later", "--subject", "later.>")
    admin = await connect(ADMIN)
    assert (await admin.jetstream().publish("later.1", b"x")).seq == 1
    await alice.jetstream().publish("orders.1", b"x")
    await alice.publish("chat", b"")
    await until(lambda: bool(heard))
    assert heard == ["chat"]
    await admin.jetstream().delete_stream("later")


async def test_who_may_read_hears_it(connect: Connect) -> None:
    alice, heard = await connect("alice"), list[bytes]()

    async def take(message: Msg) -> None:
        heard.append(message.data)

    await alice.subscribe("orders.*", cb=take)
    await alice.flush()
    await alice.jetstream().publish("orders.1", b"hello")
    await until(lambda: heard == [b"hello"])


async def test_management_asks_for_the_rights_of_the_login(connect: Connect) -> None:
    alice, mallory = await connect("alice"), await connect("mallory")
    assert (await alice.jetstream().stream_info("orders")).config.name == "orders"
    with pytest.raises(nats.js.errors.Error):
        await alice.jetstream().add_stream(name="mine", subjects=["mine"])
    with pytest.raises(nats.js.errors.Error):
        await mallory.jetstream().stream_info("orders")
    admin = await connect(ADMIN)
    await admin.jetstream().add_stream(name="mine", subjects=["mine"])
    assert await admin.jetstream().delete_stream("mine")


async def test_an_nkey_logs_in(node: GuardedNode, connect: Connect) -> None:
    seed = node.directory / "admin.nk"
    admin = await connect(nkeys_seed=str(node.admin_key.write(seed)))
    assert (await admin.jetstream().stream_info("secret")).config.name == "secret"


async def test_a_user_that_is_removed_is_closed(node: GuardedNode, connect: Connect) -> None:
    password = str(node.password_file("guest"))
    await asyncio.to_thread(node.admin, "user", "add", "guest", "--new-password-file", password)
    closed = asyncio.Event()

    async def note() -> None:
        closed.set()

    await connect("guest", closed_cb=note)
    await asyncio.to_thread(node.admin, "user", "rm", "guest", "--yes")
    async with asyncio.timeout(20):
        await closed.wait()


async def test_acts_and_refusals_are_audited_with_the_user(
    node: GuardedNode, connect: Connect
) -> None:
    admin = await connect(ADMIN)
    await admin.jetstream().add_stream(name="audited", subjects=["audited"])
    await answer_to(node, b'CONNECT {"user":"alice","pass":"wrong"}\r\n')
    await until(lambda: any(it.get("resources") == ["audited"] for it in node.audited()))
    (act,) = (it for it in node.audited() if it.get("resources") == ["audited"])
    assert act["principal"] == f"User:{ADMIN}"
    assert any("NATS port" in str(it) for it in node.audited())


async def test_a_client_is_told_that_its_account_has_ended(tmp_path: Path) -> None:
    operator, account, key = operator_key(), AccountJwt(), user_key()
    accounts = tmp_path / "accounts"
    accounts.mkdir()
    listen = {"operator": operator_jwt(operator), "account_jwts": [str(accounts)]}
    node = NodeProcess(
        1, tmp_path / "node", settings={"nats": {"servers": []}, "nats_listen": listen}
    )
    node.start()
    try:
        account.claims["exp"] = int(time.time()) + 3
        (accounts / f"{account.key.public}.jwt").write_text(account.jwt(operator))
        jwt = user_jwt(account.key, key, {**UNLIMITED, "bearer_token": True})
        login = {"jwt": jwt, "verbose": False}
        port = int(node.port_url.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"CONNECT %b\r\nPING\r\n" % json.dumps(login).encode())
        lines = (await asyncio.wait_for(reader.read(), 20)).splitlines()[1:]
        writer.close()
    finally:
        node.end()
    told = [it for it in lines if it != b"PING"]  # which the port sends meanwhile
    assert told == [b"PONG", b"-ERR 'Account Authentication Expired'"]


async def test_a_consumer_is_for_those_who_may_read_its_stream(connect: Connect) -> None:
    complaints = Complaints()
    admin, mallory = await connect(ADMIN), await connect("mallory", error_cb=complaints.note)
    await admin.jetstream().publish("orders.1", b"x")
    subscription = await admin.jetstream().pull_subscribe("orders.>", "worker")
    (message,) = await subscription.fetch(1, timeout=5)
    with pytest.raises(nats.js.errors.APIError, match="stream not found"):
        await mallory.jetstream().add_consumer("orders", durable_name="mine")
    with pytest.raises(nats.js.errors.APIError, match="stream not found"):
        await mallory.jetstream().consumer_info("orders", "worker")
    with pytest.raises(nats.errors.NoRespondersError):
        await mallory.request("$JS.API.CONSUMER.MSG.NEXT.orders.worker", b"", timeout=5)
    await mallory.publish(message.reply, b"+ACK")
    await until(lambda: len(complaints) >= 1)
    assert "permissions violation for publish" in complaints[0].lower()
    info = await subscription.consumer_info()
    assert info.num_ack_pending == 1
    await message.ack_sync()
    assert (await subscription.consumer_info()).num_ack_pending == 0
    await admin.jetstream().delete_consumer("orders", "worker")


async def test_what_a_consumer_delivers_is_stored_by_no_stream(connect: Connect) -> None:
    """Else a client could write to a stream in the node's name."""
    admin = await connect(ADMIN)
    for subject in ("secret.1", "$JS.API.STREAM.DELETE.orders"):
        with pytest.raises(nats.js.errors.APIError, match="deliver subject"):
            await admin.jetstream().add_consumer(
                "orders", durable_name="p", deliver_subject=subject
            )
