"""Getting in at nats-servers that let in only whom they know, and what is said when they do not."""

import asyncio
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nats
import pytest

from streamlog.config import NatsSection
from streamlog.errors import NodeUnreachable
from streamlog.nats_tools.publisher import Publisher
from tests.local_node import LocalNode, until
from tests.secured_nats import Certificates, ConfiguredNats, NatsCluster, Operator, user_key
from tools.nodes.node_process import NodeProcess
from tools.nodes.server_process import program

SECRET = "5e5ame-Open"
"""Of users and tokens, so that it can be looked for."""


@dataclass
class Way:
    """A server's settings, and the settings of whoever may in."""

    config: str
    nats: dict[str, Any] = field(default_factory=dict)
    secrets: list[str] = field(default_factory=list)
    """What nobody may be shown."""
    scheme: str = "nats"
    userinfo: str = ""

    def servers(self, server: ConfiguredNats, userinfo: str | None = None) -> str:
        login = self.userinfo if userinfo is None else userinfo
        return f"{self.scheme}://{login}{server.host}:{server.port}"


def password(_: Path) -> Way:
    config = f"authorization {{ user: app, password: '{SECRET}' }}\n"
    return Way(config, {"user": "app", "password": SECRET}, [SECRET])


def login_in_the_address(_: Path) -> Way:
    config = f"authorization {{ user: app, password: '{SECRET}' }}\n"
    return Way(config, {}, [SECRET], userinfo=f"app:{SECRET}@")


def token(_: Path) -> Way:
    return Way(f"authorization {{ token: '{SECRET}' }}\n", {"token": SECRET}, [SECRET])


def nkey(path: Path) -> Way:
    key = user_key()
    config = f"authorization {{ users: [ {{ nkey: {key.public} }} ] }}\n"
    return Way(config, {"nkey_seed": str(key.write(path / "user.nk"))}, [key.seed])


def credentials(path: Path) -> Way:
    operator = Operator()
    user = operator.write_credentials(path / "user.creds")
    jwt = (path / "user.creds").read_text().splitlines()[1]
    return Way(operator.config(), {"credentials": str(path / "user.creds")}, [user.seed, jwt])


def tls(path: Path) -> Way:
    made = Certificates(path / "tls")
    config = made.config(made.issue("server", "127.0.0.1"))
    config += f"authorization {{ user: app, password: '{SECRET}' }}\n"
    ways = {"user": "app", "password": SECRET, "tls_ca": str(made.ca)}
    return Way(config, ways, [SECRET], scheme="tls")


def tls_first(path: Path) -> Way:
    made = Certificates(path / "tls")
    config = made.config(made.issue("server", "nats.example"), first=True)
    ways = {"tls_ca": str(made.ca), "tls_first": True, "tls_server_name": "nats.example"}
    return Way(config, ways)


def mutual_tls(path: Path) -> Way:
    made = Certificates(path / "tls")
    config = made.config(made.issue("server", "127.0.0.1"), verify=True)
    cert, key = made.issue("node", "node.example")
    ways = {"tls_ca": str(made.ca), "tls_cert": str(cert), "tls_key": str(key)}
    return Way(config, ways, [key.read_text().splitlines()[1]])


WAYS = (
    password, login_in_the_address, token, nkey, credentials, tls, tls_first, mutual_tls,
)  # fmt: skip


@pytest.fixture
def start_nats(tmp_path: Path) -> Iterator[Callable[[str], ConfiguredNats]]:
    servers: list[ConfiguredNats] = []

    def start(config: str) -> ConfiguredNats:
        server = ConfiguredNats(tmp_path, config, name=f"nats-{len(servers)}")
        server.start()
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.kill()


CLI_NAMES = {
    "user": "NATS_USER", "password": "NATS_PASSWORD", "token": "NATS_TOKEN",
    "nkey_seed": "NATS_NKEY", "credentials": "NATS_CREDS", "tls_ca": "NATS_CA",
    "tls_cert": "NATS_CERT", "tls_key": "NATS_KEY", "tls_first": "NATS_TLS_FIRST",
    "tls_server_name": "NATS_TLS_SERVER_NAME",
}  # fmt: skip


class Printed:
    """What processes have printed, and what can be seen of them."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._environment = {**os.environ, **environment}
        self.text = ""

    def run(self, *arguments: str, code: int = 0) -> str:
        """A command of streamlog."""
        done = subprocess.run(
            [program("streamlog"), *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            env=self._environment,
        )
        self.text += done.stdout + done.stderr
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def look_at(self, node: NodeProcess) -> None:
        """Its log, its pages, its arguments, its settings as Kafka clients see them."""
        from confluent_kafka.admin import AdminClient, ConfigResource

        for page in ("/", "/metrics", "/healthz", "/readyz"):
            self.text += node.http(page)[1]
        for process in _family(node.pid):
            self.text += Path(f"/proc/{process}/cmdline").read_text()
        resource = ConfigResource(ConfigResource.Type.BROKER, str(node.number))
        admin = AdminClient({"bootstrap.servers": node.kafka})
        asked = admin.describe_configs([resource])
        self.text += "".join(str(entry) for entry in asked[resource].result(10).values())


def _family(pid: int) -> list[str]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [str(pid), *(each for child in children for each in _family(int(child)))]


@pytest.mark.parametrize("way_of", WAYS, ids=lambda way: way.__name__)
def test_each_way_in_and_nothing_secret_is_shown(
    tmp_path: Path,
    start_nats: Callable[[str], ConfiguredNats],
    way_of: Callable[[Path], Way],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    way = way_of(tmp_path)
    server = start_nats(way.config)
    node = NodeProcess(1, tmp_path / "node")
    settings = {key: value for key, value in way.nats.items() if value != SECRET}
    for key in way.nats.keys() - settings.keys():
        monkeypatch.setenv(f"STREAMLOG_NATS__{key.upper()}", SECRET)
    url = way.servers(server)
    node.configure({"nats": {"servers": [url], **settings}, "logging": {"level": "debug"}})
    environment = {CLI_NAMES[key]: str(value) for key, value in way.nats.items()}
    printed = Printed({**environment, "NATS_URL": url})
    try:
        node.spawn()
        node.wait_ready()
        printed.run("stream", "add", "orders", "--bootstrap-server", node.kafka)
        assert "3 stored in orders" in printed.run("publish", "orders", "x", "--count=3", "--ack")
        bench = printed.run("bench", "publish", "orders", "--count", "500", "--json")
        assert json.loads(bench)["stored"] == 500
        if way_of is mutual_tls:
            printed.run("bench", "latency", "orders", "--rate", "500", "--seconds", "0.2")
            printed.run("bench", "failover", "orders", "--seconds", "0.2")
            printed.run("publish", "--help")
        printed.look_at(node)
    finally:
        node.kill()
    printed.text += node.log_text()
    assert "connected to NATS" in printed.text
    assert [secret for secret in way.secrets if secret in printed.text] == []


class Lines:
    """The log lines about NATS."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self._caplog = caplog

    @property
    def found(self) -> list[Any]:
        return [record for record in self._caplog.records if "NATS" in record.getMessage()]

    def waiting(self) -> list[tuple[str, str]]:
        """Error and remedy of those that say why there is no connection."""
        found = [it for it in self.found if it.getMessage() == "waiting for NATS"]
        return [(it.error, it.remedy) for it in found]


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Lines:
    caplog.set_level("INFO")
    return Lines(caplog)


def wrong_password(path: Path) -> tuple[Way, Callable[[Way], None], str, str]:
    way = password(path)
    way.nats["password"] = "wr0ng"

    def mend(it: Way) -> None:
        it.config = it.config.replace(SECRET, "wr0ng")

    return way, mend, "Authorization Violation' (user 'app')", "knows this login"


def wrong_token(path: Path) -> tuple[Way, Callable[[Way], None], str, str]:
    way = token(path)
    way.nats["token"] = "wr0ng"

    def mend(it: Way) -> None:
        it.config = it.config.replace(SECRET, "wr0ng")

    return way, mend, "Authorization Violation' (a token)", "knows this login"


def unknown_nkey(path: Path) -> tuple[Way, Callable[[Way], None], str, str]:
    way = nkey(path)
    seed = Path(way.nats["nkey_seed"])
    right = seed.read_text()
    user_key().write(seed)
    return way, lambda _: _write(seed, right), "(the NKey in ", "knows this login"


def expired_credentials(path: Path) -> tuple[Way, Callable[[Way], None], str, str]:
    operator = Operator()
    file = path / "user.creds"
    operator.write_credentials(file, expires_s=-100)
    way = Way(operator.config(), {"credentials": str(file)})

    def mend(_: Way) -> None:
        operator.write_credentials(file, expires_s=100)

    return way, mend, f"{file}, which expired at 20", "a new file is read"


def credentials_of_another_operator(path: Path) -> tuple[Way, Callable[[Way], None], str, str]:
    operator = Operator()
    file = path / "user.creds"
    Operator().write_credentials(file)
    way = Way(operator.config(), {"credentials": str(file)})

    def mend(_: Way) -> None:
        operator.write_credentials(file)

    return way, mend, f"the credentials in {file})", "knows this login"


def _of_certificate(
    path: Path, error: str, remedy: str, *hosts: str, expired: bool = False
) -> tuple[Way, Callable[[Way], None], str, str]:
    made = Certificates(path / "tls")
    way = Way(made.config(made.issue("server", *hosts, expired=expired)))
    way.nats["tls_ca"] = str(made.ca)

    def mend(_: Way) -> None:
        made.issue("server", "127.0.0.1")

    return way, mend, error, remedy


def certificate_of_another_host(path: Path) -> tuple[Way, Callable[[Way], None], str, str]:
    return _of_certificate(
        path, "not valid for '127.0.0.1'", "nats.tls_server_name", "other.example"
    )


def expired_certificate(path: Path) -> tuple[Way, Callable[[Way], None], str, str]:
    return _of_certificate(
        path, "certificate has expired", "renew the certificate", "127.0.0.1", expired=True
    )


def unknown_ca(path: Path) -> tuple[Way, Callable[[Way], None], str, str]:
    made, other = Certificates(path / "tls"), Certificates(path / "other")
    way = Way(made.config(made.issue("server", "127.0.0.1")), {"tls_ca": str(other.ca)})

    def mend(_: Way) -> None:
        other.ca.write_bytes(made.ca.read_bytes())

    return way, mend, "certificate verify failed", "nats.tls_ca"


def no_tls_at_the_server(path: Path) -> tuple[Way, Callable[[Way], None], str, str]:
    made = Certificates(path / "tls")
    config = made.config(made.issue("server", "127.0.0.1"))
    way = Way("", {"tls_ca": str(made.ca)}, scheme="tls")

    def mend(it: Way) -> None:
        it.config = config

    return way, mend, "the server offers no TLS", "turn TLS on there"


def no_certificate_of_ours(path: Path) -> tuple[Way, Callable[[Way], None], str, str]:
    made = Certificates(path / "tls")
    cert = made.issue("server", "127.0.0.1")
    way = Way(made.config(cert, verify=True), {"tls_ca": str(made.ca)})

    def mend(it: Way) -> None:
        it.config = made.config(cert)

    return way, mend, "", "nats.tls_cert"


def certificate_of_ours_from_another_ca(path: Path) -> tuple[Way, Callable[[Way], None], str, str]:
    made, other = Certificates(path / "tls"), Certificates(path / "other")
    cert, key = other.issue("node", "node.example")
    way = Way(
        made.config(made.issue("server", "127.0.0.1"), verify=True),
        {"tls_ca": str(made.ca), "tls_cert": str(cert), "tls_key": str(key)},
    )

    def mend(_: Way) -> None:
        mine, its_key = made.issue("node", "node.example")
        cert.write_bytes(mine.read_bytes())
        key.write_bytes(its_key.read_bytes())

    return way, mend, "", "nats.tls_cert"


def server_that_wants_tls_first(path: Path) -> tuple[Way, Callable[[Way], None], str, str]:
    way = tls_first(path)
    way.nats["tls_first"] = False

    def mend(it: Way) -> None:
        it.config = it.config.replace("handshake_first: true", "")

    return way, mend, "NATS does not answer in time", "nats.tls_first"


def _write(path: Path, text: str) -> None:
    path.write_text(text)


WRONG = (
    wrong_password, wrong_token, unknown_nkey, expired_credentials,
    credentials_of_another_operator, certificate_of_another_host, expired_certificate, unknown_ca,
    no_tls_at_the_server, no_certificate_of_ours, certificate_of_ours_from_another_ca,
    server_that_wants_tls_first,
)  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG, ids=lambda it: it.__name__)
async def test_what_is_wrong_is_said_once_and_mended_without_a_restart(
    tmp_path: Path,
    start_nats: Callable[[str], ConfiguredNats],
    lines: Lines,
    wrong: Callable[[Path], tuple[Way, Callable[[Way], None], str, str]],
) -> None:
    way, mend, error, remedy = wrong(tmp_path)
    server = start_nats(way.config)
    settings = {**way.nats, "reconnect_backoff_max_ms": 200}
    url = way.servers(server)
    node = LocalNode(tmp_path / "data", url, nats=settings, wait_connected=False)
    async with node:
        with pytest.raises(NodeUnreachable) as refused:
            await _publish(way, url)
        assert remedy in str(refused.value)
        await until(lambda: node.failures() >= 3, timeout_s=15)
        assert not node.source.is_connected
        said = lines.waiting()
        assert len(said) == len({text for text, _ in said}), said
        assert len(said) <= 2, said
        assert any(error in text and remedy in what for text, what in said), said
        complaint = node.source.complaint
        assert complaint is not None
        assert complaint.text in [text for text, _ in said]
        await node.create("orders")  # all but NATS goes on
        assert await node.records("orders") == []
        mend(way)
        server.kill()
        server.write(way.config)
        await asyncio.to_thread(server.start)
        await until(lambda: node.source.is_connected and node.api.is_ready, timeout_s=15)
        assert node.source.complaint is None
        await _publish(way, url)
        assert len(await node.records("orders")) == 1


async def _publish(way: Way, url: str) -> None:
    async with Publisher(NatsSection(servers=(url,), **way.nats), timeout_s=1) as publisher:
        await publisher.publish("orders", b"x")


async def test_refusals_come_ever_more_slowly(
    tmp_path: Path, start_nats: Callable[[str], ConfiguredNats]
) -> None:
    way = wrong_password(tmp_path)[0]
    server = start_nats(way.config)
    settings = {**way.nats, "reconnect_backoff_ms": 20, "reconnect_backoff_max_ms": 400}
    node = LocalNode(tmp_path / "data", server.url, nats=settings, wait_connected=False)
    async with node:
        began = time.monotonic()
        await until(lambda: node.failures("login") >= 7)  # 20, 40, 80, 160, 320, 400 between them
        assert time.monotonic() - began >= 0.9


async def test_credentials_that_expire_while_they_are_used(
    tmp_path: Path, start_nats: Callable[[str], ConfiguredNats], lines: Lines
) -> None:
    operator = Operator()
    file = tmp_path / "user.creds"
    server = start_nats(operator.config())
    operator.write_credentials(file, expires_s=2)
    settings = {"credentials": str(file), "reconnect_backoff_max_ms": 100}
    async with LocalNode(tmp_path / "data", server.url, nats=settings) as node:
        await node.create("orders")
        await until(lambda: not node.source.is_connected, timeout_s=15)
        await until(lambda: any("expired at" in text for text, _ in lines.waiting()))
        operator.write_credentials(file, expires_s=100)
        await until(lambda: node.source.is_connected and node.api.is_ready)
        await _publish(Way("", {"credentials": str(file)}), server.url)


async def test_a_server_that_is_told_of_by_another_gets_the_login_of_the_address(
    tmp_path: Path,
) -> None:
    """nats-py takes a login in an address for that of this address alone."""
    way = login_in_the_address(tmp_path)
    with NatsCluster(tmp_path, 2, way.config) as servers:
        known, told = servers.servers
        async with LocalNode(tmp_path / "data", way.servers(known)) as node:
            await node.create("orders")
            known.kill()
            await until(
                lambda: (
                    node.source.is_connected and node.count("streamlog_nats_reconnects_total") > 0
                )
            )
            client = await nats.connect(way.servers(told))
            answer = await client.request("orders", b"x")
            assert json.loads(answer.data)["seq"] == 1
            await client.close()
