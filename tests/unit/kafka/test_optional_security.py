"""While TLS and logins are turned on node by node: who is let in, and how one finds one's way."""

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from streamlog.client.connection import Connection
from streamlog.client.security import ClientLogin, Security
from streamlog.config import ClientAuth, SaslSection
from streamlog.errors import AuthenticationFailed, NodeUnreachable
from streamlog.wire import fetch, registry
from tests.certificate_authority import CertificateAuthority
from tests.kafka_node import KafkaNode, until

METADATA = {"topics": None, "allow_auto_topic_creation": False}
TOLERATED = "streamlog_unauthenticated_connections"
ALICE = ClientLogin("SCRAM-SHA-512", "alice", lambda: "secret")
Tls = Callable[[], ssl.SSLContext | None]


class World(NamedTuple):
    authority: CertificateAuthority
    sasl: SaslSection

    def node(
        self,
        *,
        tls: bool = True,
        login: bool = True,
        optional: bool = True,
        client_auth: ClientAuth = "none",
    ) -> KafkaNode:
        shown: ClientAuth = "none" if client_auth == "none" else "optional"
        server = self.authority.server(self.authority.issue("node"), shown)
        node = KafkaNode(
            tls=lambda: server if tls else None,
            sasl=self.sasl if login else None,
            optional=optional,
            client_auth=client_auth,
        )
        if login:
            node.metadata.add_user("alice", "secret")
        return node

    def security(self, *, tls: bool, login: ClientLogin | None, optional: bool = False) -> Security:
        context = self.authority.client()
        return Security(lambda: context if tls else None, login, optional)


@pytest.fixture
def world(tmp_path: Path) -> World:
    sasl = SaslSection(mechanisms=("SCRAM-SHA-512",), failure_delay_ms=10)
    return World(CertificateAuthority(tmp_path), sasl)


async def connected(node: KafkaNode, security: Security) -> Connection:
    connection = await Connection.open("127.0.0.1", node.port, timeout_ms=5_000, security=security)
    assert (await connection.request(registry.METADATA, METADATA))["cluster_id"]
    return connection


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("login", [None, ALICE])
async def test_everybody_is_let_in_and_who_would_not_be_is_counted(
    world: World, tls: bool, login: ClientLogin | None
) -> None:
    async with world.node() as node:
        connection = await connected(node, world.security(tls=tls, login=login))
        assert node.metric(TOLERATED) == (0 if tls and login else 1)
        connection.close()
        await until(lambda: node.metric(TOLERATED) == 0)


@pytest.mark.parametrize("client_auth", ["optional", "required"])
@pytest.mark.parametrize("shows", [False, True])
async def test_who_shows_no_certificate_is_counted_where_one_will_be_demanded(
    world: World, client_auth: ClientAuth, shows: bool
) -> None:
    own = world.authority.issue("alice") if shows else None
    context = world.authority.client(own)
    async with world.node(client_auth=client_auth) as node:
        connection = await connected(node, Security(lambda: context, ALICE, False))
        missed = client_auth == "required" and not shows
        assert node.metric(TOLERATED) == missed
        connection.close()


async def test_a_wrong_password_is_none(world: World) -> None:
    async with world.node() as node:
        wrong = ClientLogin("SCRAM-SHA-512", "alice", lambda: "guessed")
        with pytest.raises(AuthenticationFailed):
            await connected(node, world.security(tls=True, login=wrong))


async def test_where_there_is_tls_alone_it_alone_counts(world: World) -> None:
    async with world.node(login=False) as node:
        sealed = await connected(node, world.security(tls=True, login=None))
        assert node.metric(TOLERATED) == 0
        clear = await connected(node, world.security(tls=False, login=None))
        assert node.metric(TOLERATED) == 1
        sealed.close()
        clear.close()


@pytest.mark.parametrize("tls", [False, True])
async def test_records_are_the_same_either_way(world: World, tls: bool) -> None:
    async with world.node() as node:
        partition = await node.add_stream("s")
        partition.append([b"x" * 300_000])
        wanted = fetch.FetchPartition(0, 0, 1 << 20)
        asked = fetch.FetchRequest((fetch.FetchTopic("s", (wanted,)),), 0, 1, 1 << 20)
        async with await connected(node, world.security(tls=tls, login=ALICE)) as connection:
            answer = await connection.fetch(asked)
        assert b"x" * 300_000 in bytes(answer.partitions[0].records)


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("login", [False, True])
@pytest.mark.parametrize("optional", [False, True])
async def test_a_node_that_changes_gets_into_those_before_and_after(
    world: World, tls: bool, login: bool, optional: bool
) -> None:
    """With all that the other one knows."""
    ours = world.security(tls=True, login=ALICE, optional=True)
    async with world.node(tls=tls, login=login, optional=optional) as node:
        connection = await connected(node, ours)
        assert (connection._tls is not None) == tls
        assert node.metric(TOLERATED) == 0
        connection.close()


async def test_who_does_not_go_the_optional_way_stays_out(world: World) -> None:
    async with world.node(tls=False, login=False, optional=False) as node:
        with pytest.raises(NodeUnreachable, match="TLS"):
            await connected(node, world.security(tls=True, login=None))


async def test_a_bad_certificate_is_no_reason_to_go_in_the_clear(
    world: World, tmp_path: Path
) -> None:
    stranger = CertificateAuthority(tmp_path / "stranger").client()
    async with world.node() as node:
        with pytest.raises(NodeUnreachable, match="certificate"):
            await connected(node, Security(lambda: stranger, None, permissive=True))
