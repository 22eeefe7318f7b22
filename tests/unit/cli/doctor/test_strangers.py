"""Doctor asks whoever listens there: whatever that answers, it is a finding."""

import asyncio

import pytest

from streamlog.cli.doctor.clocks import examine
from streamlog.cli.doctor.node import judged
from streamlog.config import Settings

OK = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"
DEEP = b"[" * 100_000
ANSWERS = [
    b"", b"\x00\x00\x00\x08garbage\r\n", b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 99999 x\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{", b"HTTP/1.1 500 x\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 200 + b"\r\n",
    OK + DEEP, OK + b"[]", OK + b"{}", OK + b"\xff",
    OK + b'{"time_ms":[]}', OK + b'{"time_ms":null}', OK + b'{"time_ms":"x"}',
]  # fmt: skip


@pytest.mark.parametrize("answer", ANSWERS)
async def test_a_stranger_tells_no_time(answer: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        settings = Settings(node={"data_dir": "data"})
        found = [it async for it in examine(settings, [address], address, 5)]
    assert [it.severity for it in found] == ["skipped", "skipped"]


@pytest.mark.parametrize("text", ["", "[]", "7", DEEP.decode(), '{"ready":1,"reasons":7}'])
def test_a_stranger_is_not_ready(text: str) -> None:
    assert [it.severity for it in judged("node 1", text)] == ["skipped"]
