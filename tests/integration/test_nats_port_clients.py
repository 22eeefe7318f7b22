"""What nats-py sends when it logs in is what the port's authenticator understands."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client
from nats.errors import Error as NatsError

from streamlog.errors import AuthenticationFailed
from streamlog.nats.auth import err
from streamlog.nats.auth.port_authenticator import PortAuthenticator
from tests.nats_jwts import AccountJwt, operator_jwt, operator_key, user_jwt
from tests.port_world import PortWorld
from tests.secured_nats import KeyPair, user_key

TOKEN = "a-token-of-some-length"
SCRAM: dict[str, Any] = {"mechanisms": ["SCRAM-SHA-256"]}


class Handshakes:
    """Answers a CONNECT, and nothing else."""

    def __init__(self, port: PortAuthenticator) -> None:
        self._port = port
        self.principals: list[str] = []

    @asynccontextmanager
    async def listen(self) -> AsyncIterator[str]:
        async with await asyncio.start_server(self._serve, "127.0.0.1", 0) as server:
            yield f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonce = self._port.new_nonce()
        info = {"server_id": "x", "version": "2.11.0", "max_payload": 1_000, "headers": True}
        info |= {"auth_required": self._port.required, "nonce": nonce}
        writer.write(b"INFO %b\r\n" % json.dumps(info).encode())
        connect = json.loads((await reader.readline()).removeprefix(b"CONNECT "))
        try:
            login = await self._port.log_in(
                connect, nonce=nonce, host="127.0.0.1", tls_subject=None, is_encrypted=False
            )
        except AuthenticationFailed:
            writer.write(f"-ERR '{err.AUTHORIZATION_VIOLATION}'\r\n".encode())
        else:
            self.principals.append(str(login.session.principal))
            while (await reader.readline()) == b"PING\r\n":
                writer.write(b"PONG\r\n")
        await writer.drain()
        writer.close()


async def principal(world: PortWorld, **options: Any) -> str:
    """Whom a client is let in as. Raises what nats-py does."""
    handshakes = Handshakes(world.port)
    client: Any = Client()
    async with handshakes.listen() as address:
        try:
            await client.connect(
                address, allow_reconnect=False, connect_timeout=5, error_cb=ignore, **options
            )
        finally:
            await client.close()
            if client._transport is not None:  # after a refusal it stays open
                client._transport.close()
    return handshakes.principals[-1]


async def ignore(_: Exception) -> None:
    pass


def credentials(path: Path, jwt: str, key: KeyPair) -> str:
    path.write_text(
        f"-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{key.seed}\n------END USER NKEY SEED------\n"
    )
    return str(path)


async def test_nats_py_logs_in_with_a_password() -> None:
    world = PortWorld(sasl=SCRAM)
    world.add_user("alice", "secret")
    assert await principal(world, user="alice", password="secret") == "User:alice"
    with pytest.raises(NatsError, match="Authorization Violation"):
        await principal(world, user="alice", password="wrong")
    with pytest.raises(NatsError, match="Authorization Violation"):
        await principal(world)


async def test_nats_py_logs_in_with_a_token(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text(f"{TOKEN} alice\n")
    assert await principal(PortWorld({"token_file": str(path)}), token=TOKEN) == "User:alice"


async def test_nats_py_logs_in_with_an_nkey(tmp_path: Path) -> None:
    key = user_key()
    world = PortWorld(authorization={"nkeys": {key.public: "alice"}})
    seed = str(key.write(tmp_path / "user.nk"))
    assert await principal(world, nkeys_seed=seed) == "User:alice"
    other = str(user_key().write(tmp_path / "other.nk"))
    with pytest.raises(NatsError, match="Authorization Violation"):
        await principal(world, nkeys_seed=other)


async def test_nats_py_logs_in_with_credentials(tmp_path: Path) -> None:
    operator, account, key = operator_key(), AccountJwt(), user_key()
    settings = {"operator": operator_jwt(operator), "account_jwts": [account.jwt(operator)]}
    world = PortWorld(settings)
    creds = credentials(tmp_path / "user.creds", user_jwt(account.key, key), key)
    assert await principal(world, user_credentials=creds) == f"User:{key.public}"
    creds = credentials(tmp_path / "other.creds", user_jwt(account.key, key), user_key())
    with pytest.raises(NatsError, match="Authorization Violation"):
        await principal(world, user_credentials=creds)
