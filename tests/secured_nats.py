"""nats-servers that let in only whom they know, and the keys, JWTs and certificates for them."""

import base64
import json
import os
import signal
import socket
import ssl
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import nkeys
import trustme

from tools.nodes.ports import free_port
from tools.nodes.server_process import NatsServer, program, wait_until

HOST: Final = "127.0.0.1"


class KeyPair:
    """An NKey, made by chance."""

    def __init__(self, prefix: int) -> None:
        self.seed = nkeys.encode_seed(os.urandom(32), prefix).decode()
        self.public = nkeys.from_seed(bytearray(self.seed.encode())).public_key.decode()

    def sign(self, data: bytes) -> bytes:
        return bytes(nkeys.from_seed(bytearray(self.seed.encode())).sign(data))

    def write(self, path: Path) -> Path:
        path.write_text(self.seed + "\n")
        return path


def user_key() -> KeyPair:
    return KeyPair(nkeys.PREFIX_BYTE_USER)


class Operator:
    """An operator with one account, and JWTs for its users, in the form of ``nsc``."""

    def __init__(self) -> None:
        self.key = KeyPair(nkeys.PREFIX_BYTE_OPERATOR)
        self.account = KeyPair(nkeys.PREFIX_BYTE_ACCOUNT)

    def config(self) -> str:
        """Of a nats-server."""
        unlimited = dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn"), -1)
        limits = {**unlimited, "leaf": -1, "wildcards": True}
        account = _jwt(self.key, self.account.public, {"type": "account", "limits": limits})
        operator = _jwt(self.key, self.key.public, {"type": "operator"})
        return (
            f"operator: {operator}\nresolver: MEMORY\n"
            f"resolver_preload: {{ {self.account.public}: {account} }}\n"
        )

    def write_credentials(
        self, path: Path, *, expires_s: int | None = None, user: KeyPair | None = None
    ) -> KeyPair:
        """A .creds file for a user; ``expires_s``: from now on, the past is below 0."""
        user = user or user_key()
        unlimited = dict.fromkeys(("subs", "data", "payload"), -1)
        jwt = _jwt(self.account, user.public, {"type": "user", **unlimited}, expires_s)
        path.write_text(
            f"-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n"
            "************************* IMPORTANT *************************\n\n"
            f"-----BEGIN USER NKEY SEED-----\n{user.seed}\n------END USER NKEY SEED------\n"
        )
        return user


def _jwt(
    issuer: KeyPair, subject: str, nats: Mapping[str, object], expires_s: int | None = None
) -> str:
    now = int(time.time())
    claims: dict[str, object] = {"iat": now, "iss": issuer.public, "sub": subject, "name": "test"}
    claims |= {"jti": base64.b32encode(os.urandom(20)).decode(), "nats": {"version": 2, **nats}}
    if expires_s is not None:
        claims["exp"] = now + expires_s
    header = {"typ": "JWT", "alg": "ed25519-nkey"}
    parts = (_b64(json.dumps(part).encode()) for part in (header, claims))
    signed = ".".join(parts)
    return f"{signed}.{_b64(issuer.sign(signed.encode()))}"


def _b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Certificates:
    """A CA in a folder, and what it has signed."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._ca = trustme.CA()
        self.ca = directory / "ca.pem"
        self._ca.cert_pem.write_to_path(self.ca)

    def issue(self, name: str, *hosts: str, expired: bool = False) -> tuple[Path, Path]:
        """Certificate and key, for these hosts."""
        until = datetime.now(UTC) - timedelta(days=1) if expired else None
        issued = self._ca.issue_cert(*hosts, common_name=name, not_after=until)
        cert, key = self._directory / f"{name}.pem", self._directory / f"{name}-key.pem"
        cert.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        issued.private_key_pem.write_to_path(key)
        return cert, key

    def context(self, client: tuple[Path, Path] | None = None) -> ssl.SSLContext:
        """For a client that trusts this CA."""
        context = ssl.create_default_context(cafile=str(self.ca))
        if client is not None:
            context.load_cert_chain(*client)
        return context

    def config(self, cert: tuple[Path, Path], *, verify: bool = False, first: bool = False) -> str:
        """The tls block of a nats-server."""
        wants = f'ca_file: "{self.ca}"\nverify: true\n' if verify else ""
        before = "handshake_first: true\n" if first else ""
        return (
            f'tls {{ cert_file: "{cert[0]}"\nkey_file: "{cert[1]}"\ntimeout: 5\n{wants}{before}}}\n'
        )


class ConfiguredNats(NatsServer):
    """A nats-server with a file of settings, which may be written anew."""

    def __init__(self, directory: Path, config: str = "", name: str = "nats") -> None:
        super().__init__(directory)
        self.config = directory / f"{name}.conf"
        self.log = directory / f"{name}.log"
        self.command = [program("nats-server"), "--config", str(self.config)]
        self.write(config)

    def write(self, config: str) -> None:
        self.config.write_text(f'listen: "{self.host}:{self.port}"\n{config}')

    def told_of(self) -> set[str]:
        """The servers that it names in its greeting; none while it does not listen."""
        try:
            with socket.create_connection((self.host, self.port), 1) as connection:
                greeting = connection.makefile("rb").readline()
        except OSError:
            return set()
        info = json.loads(greeting.removeprefix(b"INFO ") or b"{}")
        return set(info.get("connect_urls", ()))

    def reload(self) -> None:
        """Read the file again."""
        os.kill(self.pid, signal.SIGHUP)


class NatsCluster:
    """nats-servers with routes to each other."""

    def __init__(self, directory: Path, size: int = 3, config: str = "") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.route_ports = [free_port() for _ in range(size)]
        self.servers = [
            ConfiguredNats(directory, config + self._routes(i), name=f"nats-{i}")
            for i in range(size)
        ]

    def _routes(self, number: int, without: int | None = None) -> str:
        others = (
            f'"nats://{HOST}:{port}"'
            for i, port in enumerate(self.route_ports)
            if i not in (number, without)
        )
        return (
            f'server_name: "n{number}"\ncluster {{ name: "c", '
            f'listen: "{HOST}:{self.route_ports[number]}", routes: [{", ".join(others)}] }}\n'
        )

    @property
    def url(self) -> str:
        """Of the first one, which tells of the others."""
        return self.servers[0].url

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    def start(self) -> None:
        """All of them; each knows then where clients reach the others."""
        for server in self.servers:
            server.spawn()
        everybody = {f"{it.host}:{it.port}" for it in self.servers}
        wait_until(
            lambda: all(it.told_of() >= everybody for it in self.servers), "a cluster of NATS"
        )

    def kill(self) -> None:
        for server in self.servers:
            server.kill()
