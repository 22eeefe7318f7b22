"""streamlog's own clients log in, and log in again in time."""

import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from streamlog.authn import scram
from streamlog.client import protocol
from streamlog.client.blocking import BlockingConnection
from streamlog.client.connection import Connection
from streamlog.client.security import ClientLogin, Security, lines_of, secret_in
from streamlog.config import SaslSection
from streamlog.errors import (
    AuthenticationFailed,
    ConfigError,
    NodeUnreachable,
    UnsupportedMechanism,
)
from streamlog.wire import registry
from tests.kafka_node import KafkaNode, ThreadedNode

LIFETIME_MS = 2000
METADATA: dict[str, Any] = {"topics": [], "allow_auto_topic_creation": False}
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN")


def sasl(**settings: Any) -> SaslSection:
    return SaslSection(
        mechanisms=MECHANISMS, allow_plain_without_tls=True, failure_delay_ms=0, **settings
    )


def login(
    secret: str = "secret", mechanism: str = "SCRAM-SHA-512", user: str = "alice"
) -> ClientLogin:
    return ClientLogin(mechanism, user, lambda: secret)


@pytest.fixture
async def node() -> AsyncIterator[KafkaNode]:
    async with KafkaNode(sasl=sasl()) as node:
        node.metadata.add_user("alice", "secret")
        yield node


@pytest.fixture
def threaded() -> Iterator[Callable[..., ThreadedNode]]:
    nodes: list[ThreadedNode] = []

    def start(**settings: Any) -> ThreadedNode:
        node = ThreadedNode(sasl=sasl(**settings)).__enter__()
        nodes.append(node)
        node.call(lambda: node.node.metadata.add_user("alice", "secret"))
        return node

    yield start
    for node in nodes:
        node.__exit__(None, None, None)


async def opened(node: KafkaNode, login: ClientLogin | None) -> Connection:
    return await Connection.open("127.0.0.1", node.port, security=Security(login=login))


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_a_connection_logs_in(node: KafkaNode, mechanism: str) -> None:
    async with await opened(node, login(mechanism=mechanism)) as connection:
        assert (await connection.request(registry.METADATA, METADATA))["cluster_id"]


async def test_a_connection_without_a_login_is_closed(node: KafkaNode) -> None:
    async with await opened(node, None) as connection:
        with pytest.raises(NodeUnreachable, match="closed the connection"):
            await connection.request(registry.METADATA, METADATA)


async def test_who_is_refused_hears_why(node: KafkaNode) -> None:
    with pytest.raises(AuthenticationFailed, match="wrong user or password"):
        await opened(node, login("wrong"))
    with pytest.raises(UnsupportedMechanism, match="OAUTHBEARER here, but SCRAM-SHA-256"):
        await opened(node, login(mechanism="OAUTHBEARER"))


async def test_a_node_that_asks_nobody_offers_no_login() -> None:
    async with KafkaNode() as node:
        with pytest.raises(UnsupportedMechanism, match="no login at all"):
            await opened(node, login())


@pytest.fixture
def early_renewals(monkeypatch: pytest.MonkeyPatch) -> None:
    """So early that a busy machine may stop this process for a second meanwhile."""
    monkeypatch.setattr(protocol, "RENEW_AT", 0.25)


@pytest.mark.usefixtures("early_renewals")
async def test_a_login_is_renewed_in_time() -> None:
    async with KafkaNode(sasl=sasl(session_lifetime_ms=LIFETIME_MS)) as node:
        node.metadata.add_user("alice", "secret")
        asked = 0

        def secret() -> str:
            nonlocal asked
            asked += 1
            return "secret"

        async with await opened(node, ClientLogin("PLAIN", "alice", secret)) as connection:
            ends_s = time.monotonic() + 1.4 * LIFETIME_MS / 1000
            while time.monotonic() < ends_s:
                await connection.request(registry.METADATA, METADATA)
        assert 2 <= asked <= 7


@pytest.mark.usefixtures("early_renewals")
def test_a_blocking_connection_logs_in_and_again_in_time(
    threaded: Callable[..., ThreadedNode],
) -> None:
    node = threaded(session_lifetime_ms=LIFETIME_MS)
    with BlockingConnection.open("127.0.0.1", node.node.port, login=login()) as connection:
        ends_s = time.monotonic() + 1.4 * LIFETIME_MS / 1000
        while time.monotonic() < ends_s:
            assert connection.request(registry.METADATA, METADATA)["cluster_id"]


def test_a_blocking_connection_hears_why_it_is_refused(
    threaded: Callable[..., ThreadedNode],
) -> None:
    node = threaded()
    with pytest.raises(AuthenticationFailed, match="wrong user or password"):
        BlockingConnection.open("127.0.0.1", node.node.port, login=login("wrong"))


def test_a_mechanism_that_there_is_not() -> None:
    with pytest.raises(ConfigError, match="'GSSAPI'"):
        login(mechanism="GSSAPI")


def test_a_node_that_wants_too_little_work_is_not_trusted() -> None:
    """A false node could ask for one iteration, and guess the password from the proof."""
    steps = login(mechanism="SCRAM-SHA-256").steps("node")
    next(steps)
    _, values = steps.send({"error_code": 0, "mechanisms": []})
    nonce = bytes(values["auth_bytes"]).rpartition(b"r=")[2]
    weak = b"r=%bx,s=c2FsdA==,i=%d" % (nonce, scram.ITERATIONS_MIN - 1)
    with pytest.raises(AuthenticationFailed, match="iterations"):
        steps.send({"error_code": 0, "error_message": None, "auth_bytes": weak})


def test_a_secret_is_the_first_line_of_a_file_as_it_is_now(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("old\n")
    secret = secret_in(path, "--password-file")
    assert secret() == "old"
    path.write_bytes(b"new one \r\nother\n")
    assert secret() == "new one "
    assert lines_of(path, "k") == ["new one ", "other"]


@pytest.mark.parametrize("content", [None, b"", b"\n", b"hunter2\xff", b"x" * 40_000])
def test_a_file_that_has_no_secret_is_named_and_not_shown(
    tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "secret"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"^--password-file") as caught:
        secret_in(path, "--password-file")()
    assert "hunter2" not in str(caught.value)
