"""Logins as a client of bare frames makes them: what is let in, what is refused, and how."""

import asyncio
import hashlib
import json
import time
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streamlog.authn import bearer, plain
from streamlog.authn.scram import ClientExchange, Credential, Scram, is_password
from streamlog.config import SaslSection
from streamlog.errors import AuthenticationFailed, ConfigError
from streamlog.kafka.auth.authenticator import Authenticator
from streamlog.kafka.net import connection
from streamlog.metadata.image.credential import StoredCredential
from streamlog.wire import registry
from streamlog.wire.error_codes import ErrorCode
from tests.kafka_node import KafkaNode, until
from tests.raw_client import RawClient, at, wanted
from tests.signed_tokens import AUDIENCE, ISSUER, key_set, token

ALL = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
SOON_MS = 20
METADATA: dict[str, Any] = {"topics": [], "allow_auto_topic_creation": False}


def sasl(tmp_path: Path, *mechanisms: str, **settings: Any) -> SaslSection:
    values: dict[str, Any] = {
        "failure_delay_ms": SOON_MS,
        "allow_plain_without_tls": True,
        **settings,
    }
    if "OAUTHBEARER" in (mechanisms or ALL):
        keys = tmp_path / "keys.json"
        keys.write_text(json.dumps(key_set()))
        oauth = {"oauth_jwks_file": keys, "oauth_issuer": ISSUER, "oauth_audience": AUDIENCE}
        values = {**oauth, **values}
    return SaslSection(mechanisms=mechanisms or ALL, **values)


@pytest.fixture(autouse=True)
def _ends_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client whose login has failed need not close the connection first."""
    monkeypatch.setattr(connection, "PART_S", 0.05)


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[KafkaNode]:
    passwords = tmp_path / "node-password"
    passwords.write_text("the nodes'\nthe nodes' old one\n")
    settings = sasl(tmp_path, node_user="node", node_password_file=passwords)
    async with KafkaNode(sasl=settings) as node:
        node.metadata.add_user("alice", "secret")
        yield node


async def handshake(client: RawClient, mechanism: str, version: int = 1) -> dict[str, Any]:
    return await client.ask(registry.SASL_HANDSHAKE, version, {"mechanism": mechanism})


async def say(client: RawClient, message: bytes, version: int = 2) -> dict[str, Any]:
    return await client.ask(registry.SASL_AUTHENTICATE, version, {"auth_bytes": message})


async def scram(
    client: RawClient, user: str, password: str, mechanism: Scram = Scram.SHA_512
) -> dict[str, Any]:
    """The last answer; raises what the client finds wrong."""
    assert (await handshake(client, mechanism.value))["error_code"] == 0
    exchange = ClientExchange(mechanism, user, password, "nonce")
    challenge = await say(client, exchange.first())
    assert challenge["error_code"] == 0
    proof = exchange.step(bytes(challenge["auth_bytes"]))
    assert proof is not None
    answer = await say(client, proof)
    if answer["error_code"] == 0:
        assert exchange.step(bytes(answer["auth_bytes"])) is None
    return answer


async def log_in(client: RawClient, mechanism: str, message: bytes) -> dict[str, Any]:
    assert (await handshake(client, mechanism))["error_code"] == 0
    return await say(client, message)


async def is_let_in(client: RawClient) -> bool:
    return "cluster_id" in await client.ask(registry.METADATA, 9, METADATA)


async def is_refused(client: RawClient, answer: dict[str, Any], message: str = "") -> None:
    """With the one answer, and nothing after it."""
    assert answer["error_code"] == ErrorCode.sasl_authentication_failed
    assert message in answer["error_message"]
    assert answer["auth_bytes"] == b""
    assert await client.closed()


@pytest.mark.parametrize("mechanism", Scram)
async def test_a_password_is_proved_without_being_shown(node: KafkaNode, mechanism: Scram) -> None:
    async with RawClient(node.port) as client:
        answer = await scram(client, "alice", "secret", mechanism)
        assert answer["error_code"] == 0
        assert answer["session_lifetime"] == 0
        assert await is_let_in(client)


async def test_a_password_may_be_said(node: KafkaNode) -> None:
    async with RawClient(node.port) as client:
        answer = await log_in(client, "PLAIN", plain.encode_message("alice", "secret"))
        assert answer["error_code"] == 0
        assert await is_let_in(client)


async def test_a_token_is_good_until_its_end(node: KafkaNode) -> None:
    async with RawClient(node.port) as client:
        answer = await log_in(client, "OAUTHBEARER", bearer.encode_message(token()))
        assert answer["error_code"] == 0
        assert 0 < answer["session_lifetime"] <= 3_630_000
        assert await is_let_in(client)


async def test_a_token_that_is_not_believed_is_answered_as_the_rfc_says(node: KafkaNode) -> None:
    async with RawClient(node.port) as client:
        bad = bearer.encode_message(token(aud="another"))
        answer = await log_in(client, "OAUTHBEARER", bad)
        assert answer["error_code"] == 0
        assert json.loads(bytes(answer["auth_bytes"])) == {"status": "invalid_token"}
        await is_refused(client, await say(client, bearer.GIVEN_UP), "not to be believed")


@pytest.mark.parametrize("api", sorted(registry.APIS))
async def test_nothing_else_is_answered_before_a_login(node: KafkaNode, api: int) -> None:
    """And nobody looks at what is asked: an empty body would be no request."""
    allowed = {registry.API_VERSIONS, registry.SASL_HANDSHAKE, registry.SASL_AUTHENTICATE}
    if api in allowed:
        pytest.skip("these may come before")
    async with RawClient(node.port) as client:
        client._send(api, registry.APIS[api].version_max, b"")
        assert await client.closed()


async def test_versions_may_be_asked_for_before_a_login(node: KafkaNode) -> None:
    async with RawClient(node.port) as client:
        answer = await client.ask(registry.API_VERSIONS, 0, {})
        assert {17, 36} <= {it["api_key"] for it in answer["api_keys"]}
        assert (await scram(client, "alice", "secret"))["error_code"] == 0


@pytest.mark.parametrize(("user", "password"), [("alice", "Secret"), ("bob", "secret")])
@pytest.mark.parametrize("mechanism", ["PLAIN", *Scram])
async def test_a_wrong_password_and_an_unknown_user_get_the_same_answer(
    node: KafkaNode, user: str, password: str, mechanism: str | Scram
) -> None:
    async with RawClient(node.port) as client:
        began_s = time.monotonic()
        if isinstance(mechanism, Scram):
            answer = await scram(client, user, password, mechanism)
        else:
            answer = await log_in(client, "PLAIN", plain.encode_message(user, password))
        await is_refused(client, answer, "wrong user or password")
        assert time.monotonic() - began_s >= SOON_MS / 1000


async def test_an_unknown_user_costs_as_much_as_a_wrong_password(
    node: KafkaNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By what is hashed: all but a thousandth of the time goes there."""
    assert node.authenticator is not None
    hashed: list[tuple[str, int]] = []
    real = hashlib.pbkdf2_hmac

    def counted(digest: str, password: bytes, salt: bytes, iterations: int) -> bytes:
        hashed.append((digest, iterations))
        return real(digest, password, salt, iterations)

    monkeypatch.setattr(hashlib, "pbkdf2_hmac", counted)
    costs = []
    for user in ("alice", "nobody", "node"):
        hashed.clear()
        kind, known = node.authenticator.of_plain(user)
        assert not is_password(kind, "guessed", known.credentials[0])
        costs.append(tuple(hashed))
    assert costs[0] and len(set(costs)) == 1, costs


async def test_an_unknown_user_is_shown_the_same_salt_each_time(node: KafkaNode) -> None:
    async def challenge(user: str) -> bytes:
        async with RawClient(node.port) as client:
            await handshake(client, "SCRAM-SHA-256")
            first = ClientExchange(Scram.SHA_256, user, "", "n").first()
            return bytes((await say(client, first))["auth_bytes"]).split(b",", 1)[1]

    assert await challenge("bob") == await challenge("bob")
    assert await challenge("bob") != await challenge("carol")
    assert (await challenge("bob")).split(b",i=")[1] == (await challenge("alice")).split(b",i=")[1]


async def test_nodes_log_in_with_any_password_of_their_file(node: KafkaNode) -> None:
    for password in ("the nodes'", "the nodes' old one"):
        async with RawClient(node.port) as client:
            assert (await scram(client, "node", password))["error_code"] == 0
            assert await is_let_in(client)
    async with RawClient(node.port) as client:
        await is_refused(client, await scram(client, "node", "secret"))
    async with RawClient(node.port) as client:
        said = plain.encode_message("node", "the nodes'")
        await is_refused(client, await log_in(client, "PLAIN", said))
    async with RawClient(node.port) as client:
        await is_refused(client, await scram(client, "node", "the nodes'", Scram.SHA_256))


async def test_a_password_that_is_taken_away_is_good_for_nothing(node: KafkaNode) -> None:
    node.metadata.add_user("bob", "secret", Scram.SHA_256)
    async with RawClient(node.port) as client:
        assert (await scram(client, "bob", "secret", Scram.SHA_256))["error_code"] == 0
    async with RawClient(node.port) as client:
        await is_refused(client, await scram(client, "bob", "secret", Scram.SHA_512))


@pytest.mark.parametrize("mechanism", ["GSSAPI", "plain", "", "SCRAM-SHA-1"])
async def test_a_mechanism_that_there_is_not_is_refused_with_those_there_are(
    node: KafkaNode, mechanism: str
) -> None:
    async with RawClient(node.port) as client:
        answer = await handshake(client, mechanism)
        assert answer["error_code"] == ErrorCode.unsupported_sasl_mechanism
        assert answer["mechanisms"] == list(ALL)
        assert await client.closed()


async def test_bare_tokens_are_refused_plainly(node: KafkaNode) -> None:
    async with RawClient(node.port) as client:
        answer = await handshake(client, "PLAIN", version=0)
        assert answer["error_code"] == ErrorCode.unsupported_version
        assert await client.closed()


async def test_plain_is_not_offered_where_everybody_listens(tmp_path: Path) -> None:
    settings = sasl(tmp_path, "PLAIN", "SCRAM-SHA-256", allow_plain_without_tls=False)
    async with KafkaNode(sasl=settings) as node, RawClient(node.port) as client:
        answer = await handshake(client, "PLAIN")
        assert answer["error_code"] == ErrorCode.unsupported_sasl_mechanism
        assert answer["mechanisms"] == ["SCRAM-SHA-256"]
    authenticator = Authenticator.load(settings, lambda: node.metadata.image)
    assert authenticator.offered(encrypted=True) == ("PLAIN", "SCRAM-SHA-256")
    authenticator.close()


async def test_a_message_without_a_handshake_is_refused(node: KafkaNode) -> None:
    async with RawClient(node.port) as client:
        answer = await say(client, plain.encode_message("alice", "secret"))
        assert answer["error_code"] == ErrorCode.illegal_sasl_state
        assert await client.closed()


async def test_a_handshake_in_the_middle_of_an_exchange_is_refused(node: KafkaNode) -> None:
    async with RawClient(node.port) as client:
        await handshake(client, "SCRAM-SHA-256")
        await say(client, b"n,,n=alice,r=x")
        answer = await handshake(client, "SCRAM-SHA-256")
        assert answer["error_code"] == ErrorCode.illegal_sasl_state
        assert await client.closed()


async def test_a_request_in_the_middle_of_an_exchange_is_not_answered(node: KafkaNode) -> None:
    async with RawClient(node.port) as client:
        await handshake(client, "SCRAM-SHA-256")
        await say(client, b"n,,n=alice,r=x")
        client.send(registry.METADATA, 9, METADATA)
        assert await client.closed()
    assert node.metric("streamlog_connections_closed_total", reason="login") == 1


async def test_a_replayed_login_is_refused(node: KafkaNode) -> None:
    said: list[bytes] = []
    async with RawClient(node.port) as client:
        await handshake(client, "SCRAM-SHA-256")
        exchange = ClientExchange(Scram.SHA_256, "alice", "secret", "nonce")
        said.append(exchange.first())
        challenge = await say(client, said[0])
        proof = exchange.step(bytes(challenge["auth_bytes"]))
        assert proof is not None
        said.append(proof)
        assert (await say(client, proof))["error_code"] == 0
    async with RawClient(node.port) as client:
        await handshake(client, "SCRAM-SHA-256")
        assert (await say(client, said[0]))["error_code"] == 0
        await is_refused(client, await say(client, said[1]), "another exchange")


async def test_a_node_that_asks_nobody_says_so(tmp_path: Path) -> None:
    async with KafkaNode() as node, RawClient(node.port) as client:
        assert (await handshake(client, "PLAIN"))["error_code"] == ErrorCode.illegal_sasl_state
        answer = await say(client, b"")
        assert answer["error_code"] == ErrorCode.illegal_sasl_state
        assert await is_let_in(client)


async def test_after_many_failures_an_address_has_to_wait(tmp_path: Path) -> None:
    settings = sasl(tmp_path, "PLAIN", failures_per_address_max=2)
    async with KafkaNode(sasl=settings) as node:
        node.metadata.add_user("alice", "secret")
        for _ in range(2):
            async with RawClient(node.port) as client:
                said = plain.encode_message("alice", "wrong")
                await is_refused(client, await log_in(client, "PLAIN", said), "wrong user")
        async with RawClient(node.port) as client:
            said = plain.encode_message("alice", "secret")
            await is_refused(client, await log_in(client, "PLAIN", said), "wait for")


async def test_of_many_guesses_at_once_no_more_are_examined_than_may_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    examined = []

    def counted(scram: Scram, password: str, credential: Any) -> bool:
        examined.append(password)
        return is_password(scram, password, credential)

    monkeypatch.setattr("streamlog.authn.scram.is_password", counted)
    settings = sasl(tmp_path, "PLAIN", failures_per_address_max=5)
    async with KafkaNode(sasl=settings) as node, AsyncExitStack() as stack:
        node.metadata.add_user("alice", "secret")
        clients = [await stack.enter_async_context(RawClient(node.port)) for _ in range(40)]
        for client in clients:
            await handshake(client, "PLAIN")
        answers = await asyncio.gather(
            *(say(it, plain.encode_message("alice", f"guess {n}")) for n, it in enumerate(clients))
        )
    assert {it["error_code"] for it in answers} == {ErrorCode.sasl_authentication_failed}
    assert len(examined) == 5


async def test_however_many_come_at_once_with_the_right_password_all_get_in(
    tmp_path: Path,
) -> None:
    settings = sasl(tmp_path, "PLAIN", failures_per_address_max=5)
    async with KafkaNode(sasl=settings) as node, AsyncExitStack() as stack:
        node.metadata.add_user("alice", "secret")
        clients = [await stack.enter_async_context(RawClient(node.port)) for _ in range(20)]
        for client in clients:
            await handshake(client, "PLAIN")
        said = plain.encode_message("alice", "secret")
        answers = await asyncio.gather(*(say(client, said) for client in clients))
    assert [it["error_code"] for it in answers] == [0] * 20


async def test_a_refused_client_may_close_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some clients do not look at an answer that comes together with the end."""
    monkeypatch.setattr(connection, "PART_S", 600.0)
    async with KafkaNode(sasl=sasl(tmp_path, "PLAIN")) as node:
        node.metadata.add_user("alice", "secret")
        async with RawClient(node.port) as client:
            answer = await log_in(client, "PLAIN", plain.encode_message("alice", "wrong"))
            assert answer["error_code"] == ErrorCode.sasl_authentication_failed
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await client.closed()
        await until(lambda: not node.listener._connections)


async def test_those_who_wait_for_a_refusal_hold_up_nobody(tmp_path: Path) -> None:
    settings = sasl(tmp_path, "PLAIN", failure_delay_ms=10_000)
    async with KafkaNode(sasl=settings) as node:
        node.metadata.add_user("alice", "secret")
        async with RawClient(node.port) as wrong, RawClient(node.port) as right:
            await handshake(wrong, "PLAIN")
            said = {"auth_bytes": plain.encode_message("alice", "wrong")}
            wrong.send(registry.SASL_AUTHENTICATE, 2, said)
            good = plain.encode_message("alice", "secret")
            assert (await log_in(right, "PLAIN", good))["error_code"] == 0
            assert await is_let_in(right)


# Sessions that end (KIP-368)


async def test_a_session_ends_and_may_be_renewed(tmp_path: Path) -> None:
    lifetime_ms = 300
    settings = sasl(tmp_path, "PLAIN", session_lifetime_ms=lifetime_ms)
    said = plain.encode_message("alice", "secret")
    async with KafkaNode(sasl=settings) as node:
        node.metadata.add_user("alice", "secret")
        async with RawClient(node.port) as client:
            answer = await log_in(client, "PLAIN", said)
            assert answer["session_lifetime"] == lifetime_ms
            assert await is_let_in(client)
            await asyncio.sleep(lifetime_ms / 1000)  # what is tested is that time passes
            assert (await log_in(client, "PLAIN", said))["error_code"] == 0
            assert await is_let_in(client)
            await asyncio.sleep(lifetime_ms / 1000)
            client.send(registry.METADATA, 9, METADATA)
            assert await client.closed()


async def test_a_session_goes_on_while_it_is_renewed(node: KafkaNode) -> None:
    async with RawClient(node.port) as client:
        await scram(client, "alice", "secret", Scram.SHA_256)
        await handshake(client, "SCRAM-SHA-256")
        assert await is_let_in(client)


async def test_a_session_stays_its_principals(node: KafkaNode) -> None:
    node.metadata.add_user("bob", "secret")
    async with RawClient(node.port) as client:
        await scram(client, "alice", "secret", Scram.SHA_256)
        answer = await scram(client, "bob", "secret", Scram.SHA_256)
        await is_refused(client, answer, "open a new connection")


async def test_a_session_stays_with_its_mechanism(node: KafkaNode) -> None:
    async with RawClient(node.port) as client:
        await scram(client, "alice", "secret", Scram.SHA_256)
        answer = await handshake(client, "PLAIN")
        assert answer["error_code"] == ErrorCode.unsupported_sasl_mechanism
        assert await client.closed()


# Files


async def test_keys_are_read_anew_when_they_change(tmp_path: Path) -> None:
    settings = sasl(tmp_path, "OAUTHBEARER")
    assert settings.oauth_jwks_file is not None
    settings.oauth_jwks_file.write_text(json.dumps(key_set("RS256")))
    authenticator = Authenticator.load(settings, lambda: KafkaNode().metadata.image)
    with pytest.raises(AuthenticationFailed):
        authenticator.verified(token("ES256"))
    settings.oauth_jwks_file.write_text(json.dumps(key_set("RS256", "ES256")))
    assert authenticator.verified(token("ES256")).user == "alice"
    settings.oauth_jwks_file.write_text("not JSON any more")
    assert authenticator.verified(token("ES256")).user == "alice"
    settings.oauth_jwks_file.unlink()
    assert authenticator.verified(token("ES256")).user == "alice"
    authenticator.close()


@pytest.mark.parametrize("setting", ["node_password_file", "bootstrap_file", "oauth_jwks_file"])
@pytest.mark.parametrize("content", [None, "", "\xff"])
def test_a_file_that_is_of_no_use_is_named(
    tmp_path: Path, setting: str, content: str | None
) -> None:
    path = tmp_path / "file"
    if content is not None:
        path.write_bytes(content.encode("latin-1"))
    more = {"node_user": "node"} if setting == "node_password_file" else {}
    settings = sasl(tmp_path, **{setting: path, **more})
    if setting == "bootstrap_file" and content == "":
        Authenticator.load(settings, lambda: KafkaNode().metadata.image).close()
        return
    with pytest.raises(ConfigError, match=f"sasl.{setting}"):
        Authenticator.load(settings, lambda: KafkaNode().metadata.image)


async def test_unknown_users_look_like_those_that_are_known(node: KafkaNode) -> None:
    """By whichever tool these were made, and whichever password is tried of them by PLAIN."""
    authenticator = node.authenticator
    assert authenticator is not None
    made: dict[str, Any] = {
        f"known-{number}": {
            "SCRAM-SHA-512": StoredCredential.of(
                Credential(bytes([number]) * 40, 5_000, bytes(64), bytes(64))
            )
        }
        for number in range(1, 4)
    }
    users = node.metadata.image.users.update(made).delete("alice")
    node.metadata.image = replace(node.metadata.image, users=users)

    async def shown(name: str, mechanism: Scram) -> tuple[int, str]:
        async with RawClient(node.port) as client:
            await handshake(client, mechanism.value)
            first = ClientExchange(mechanism, name, "x", "nonce").first()
            text = bytes((await say(client, first))["auth_bytes"]).decode()
            _, salt, iterations = text.split(",")
            return len(b64decode(salt[2:])), iterations

    for name in ("known-1", "nobody", "node", "ANONYMOUS"):
        assert await shown(name, Scram.SHA_512) == (40, "i=5000")
        scram, known = authenticator.of_plain(name)
        assert (scram, known.credentials[0].iterations) == (Scram.SHA_512, 5_000), "by the time"
    assert await shown("nobody", Scram.SHA_256) == await shown("known-1", Scram.SHA_256)


async def test_a_long_poll_ends_with_the_session(tmp_path: Path) -> None:
    """What is stored later is not for whoever asked before the end."""
    settings = sasl(tmp_path, "PLAIN", session_lifetime_ms=200)
    async with KafkaNode(sasl=settings) as node:
        node.metadata.add_user("alice", "secret")
        partition = await node.add_stream("flights")
        async with RawClient(node.port) as client:
            await log_in(client, "PLAIN", plain.encode_message("alice", "secret"))
            asked = client.send_fetch(wanted(at(0), max_wait_ms=60_000))
            answer = await client.fetched(asked)  # in the time that a client is patient
            assert not answer.partitions[0].records
            partition.append([b"later"])
            client.send_fetch(wanted(at(0)))
            assert await client.closed()
