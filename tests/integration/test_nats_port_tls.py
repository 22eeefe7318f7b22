"""TLS of the NATS port, from the handshake to the goodbye of either side."""

import asyncio
import json
import socket
import ssl
from collections.abc import Iterator
from typing import Any

import pytest

from tests.certificate_authority import CertificateAuthority
from tools.nodes.cluster import Cluster, NoNats

GOODBYE_S = 5.0


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    return CertificateAuthority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def port(
    authority: CertificateAuthority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, int]]:
    """Of a node that wants certificates of its clients."""
    settings: dict[str, dict[str, Any]] = {
        "tls": {
            **authority.issue("node").settings(),
            "client_ca": str(authority.ca),
            "client_auth": "required",
        },
        "http": {"tls": False},
        "nats_listen": {"tls_first": True},
    }
    folder = tmp_path_factory.mktemp("node")
    with Cluster(folder, nodes=1, settings=settings, nats=NoNats()) as cluster:
        host, _, number = cluster[1].port_url.removeprefix("nats://").partition(":")
        yield host, int(number)


@pytest.fixture
def context(authority: CertificateAuthority) -> ssl.SSLContext:
    client = authority.issue("client")
    made = ssl.create_default_context(cafile=str(authority.ca))
    made.load_cert_chain(client.cert, client.key)
    return made


async def test_a_client_that_says_goodbye_in_tls_gets_one(
    port: tuple[str, int], context: ssl.SSLContext
) -> None:
    reader, writer = await asyncio.open_connection(*port, ssl=context, ssl_shutdown_timeout=60)
    assert (await reader.readline()).startswith(b"INFO ")
    writer.close()
    async with asyncio.timeout(GOODBYE_S):
        await writer.wait_closed()


async def test_what_a_client_says_with_its_goodbye_is_carried_out(
    port: tuple[str, int], context: ssl.SSLContext
) -> None:
    clients = [await asyncio.open_connection(*port, ssl=context) for _ in range(2)]
    for (reader, writer), subscribe in zip(clients, (b"SUB last 1\r\n", b""), strict=True):
        writer.write(b'CONNECT {"verbose":false}\r\n' + subscribe + b"PING\r\n")
        while await reader.readline() != b"PONG\r\n":
            pass
    (reader, reading), (_, writing) = clients
    writing.write(b"PUB last 2\r\nhi\r\n")
    writing.close()
    async with asyncio.timeout(GOODBYE_S):
        assert await reader.readline() == b"MSG last 1 2\r\n"
        assert await reader.readline() == b"hi\r\n"
        reading.close()
        for _, writer in clients:
            await writer.wait_closed()


def test_a_port_that_ends_a_connection_says_goodbye(
    port: tuple[str, int], context: ssl.SSLContext
) -> None:
    with (
        socket.create_connection(port, GOODBYE_S) as plain,
        context.wrap_socket(
            plain, server_hostname=port[0], suppress_ragged_eofs=False
        ) as connection,
    ):
        connection.sendall(b"NONSENSE\r\n")
        said = b""
        while part := connection.recv(65_536):  # SSLEOFError without the goodbye
            said += part
    assert said.endswith(b"-ERR 'Authorization Violation'\r\n")


def test_info_says_whether_a_certificate_is_wanted(
    port: tuple[str, int], context: ssl.SSLContext
) -> None:
    with (
        socket.create_connection(port, GOODBYE_S) as plain,
        context.wrap_socket(plain, server_hostname=port[0]) as connection,
    ):
        info = json.loads(connection.recv(65_536).partition(b"\r\n")[0].removeprefix(b"INFO "))
    assert (info["tls_required"], info["tls_verify"]) == (True, True)
