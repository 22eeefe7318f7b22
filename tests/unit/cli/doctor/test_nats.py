"""What doctor says of nodes that are no clients of a nats-server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from streamlog.cli.doctor.nats import examine
from streamlog.config import Settings
from streamlog.findings import Finding


async def found(*servers: str) -> Finding:
    settings = Settings(
        node={"data_dir": "."}, nats={"servers": servers}, nats_listen={"port": 4222}
    )
    (finding,) = [it async for it in examine(settings, 1.0)]
    return finding


@asynccontextmanager
async def greeting(line: bytes) -> AsyncIterator[str]:
    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(line)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    async with server:
        yield f"nats-leaf://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_a_node_without_servers_has_its_own_port() -> None:
    assert (await found()).severity == "ok"


async def test_a_leafnode_port_is_told_from_others() -> None:
    async with greeting(b'INFO {"version":"2.15.1","leafnode_urls":["a"]}\r\n') as server:
        finding = await found(server)
        assert (finding.severity, "2.15.1" in finding.what) == ("ok", True)
    for line in (b'INFO {"version":"2.15.1"}\r\n', b"HTTP/1.1 400\r\n", b""):
        async with greeting(line) as server:
            finding = await found(server)
            assert (finding.severity, "leafnode port" in finding.what) == ("critical", True)


async def test_a_server_that_is_not_there_is_found() -> None:
    finding = await found("nats-leaf://127.0.0.1:1")
    assert finding.severity == "critical"
    assert "leafnodes block" in finding.remedy


@pytest.mark.parametrize("servers", [("nats-leaf://127.0.0.1:1", "nats-leaf://127.0.0.1:2")])
async def test_each_server_is_looked_at(servers: tuple[str, ...]) -> None:
    settings = Settings(node={"data_dir": "."}, nats={"servers": servers})
    assert len([it async for it in examine(settings, 1.0)]) == 2
