"""``python -m benchmarks.loop_server``: the least that a server on our event loop can do for an ack.

It prints a port. What one read brings is split into messages by a few lines of Python, and each is acknowledged in one
write; nothing is stored. So it shows what the loop, its client and the network cost, without streamlog.
"""

import asyncio
from typing import Final, cast

import uvloop

ACK: Final = b'{"stream":"bench","seq":1}'


class LoopServer(asyncio.Protocol):
    """One connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport, self._held = cast("asyncio.Transport", transport), b""
        self._transport.write(b'INFO {"headers":true,"max_payload":1048576}\r\n')

    def data_received(self, data: bytes) -> None:
        held, answers = self._held + data, list[bytes]()
        while (end := held.find(b"\r\n")) >= 0:
            line = held[:end]
            if line.startswith(b"PUB"):
                _, _, reply, size = line.split()
                after = end + 2 + int(size) + 2
                if len(held) < after:
                    break
                answers.append(b"MSG %b 1 %d\r\n%b\r\n" % (reply, len(ACK), ACK))
                held = held[after:]
            else:
                if line.startswith(b"PING"):
                    answers.append(b"PONG\r\n")
                held = held[end + 2 :]
        self._held = held
        if answers:
            self._transport.write(b"".join(answers))


async def serve() -> None:
    server = await asyncio.get_running_loop().create_server(LoopServer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve())
