"""How long a client of a JetStream consumer waits until an acknowledgement is confirmed.

``python -m benchmarks.confirming`` prints one line of JSON. What is confirmed is not delivered again: nats-server keeps
it in memory, a node writes it to ``__consumer_state``, and syncs that as the stream's ``sync`` says.
"""

import argparse
import asyncio
import json
import re
import sys
import time
from typing import Final

from benchmarks.connection import BenchmarkError, Connection

FETCH: Final = 500
TIMEOUT_S: Final = 30.0
DELIVERED: Final = re.compile(rb"MSG \S+ 1 (\$JS\.ACK\.\S+) \d+\r\n")
CONFIRMED: Final = b" 2 0\r\n"


def confirm_raw(nats: str, stream: str, count: int) -> list[float]:
    """On a raw socket; each wait in s."""
    waits = list[float]()
    body = json.dumps({"batch": FETCH, "expires": int(TIMEOUT_S * 1e9)}).encode()
    ask = b"PUB $JS.API.CONSUMER.MSG.NEXT.%b.pull inbox %d\r\n%b\r\n" % (
        stream.encode(),
        len(body),
        body,
    )
    with Connection(nats) as connection:
        connection.send(b"SUB inbox 1\r\nSUB confirmed 2\r\n")
        while len(waits) < count:
            connection.send(ask)
            replies, rest = list[bytes](), b""
            while len(replies) < FETCH:
                data, end = rest + connection.receive(), 0
                for found in DELIVERED.finditer(data):
                    replies.append(found[1])
                    end = found.end()
                rest = data[end:]
            for reply in replies:
                began = time.perf_counter()
                connection.send(b"PUB %b confirmed 4\r\n+ACK\r\n" % reply)
                while CONFIRMED not in connection.receive():
                    pass
                waits.append(time.perf_counter() - began)
    return waits


async def confirm(nats: str, stream: str, count: int) -> list[float]:
    """By nats-py's ``ack_sync``; each wait in s."""
    import nats as nats_py

    client = await nats_py.connect(f"nats://{nats}")
    bound = await client.jetstream().pull_subscribe_bind("pull", stream)
    waits = list[float]()
    while len(waits) < count:
        for message in await bound.fetch(FETCH, timeout=TIMEOUT_S):
            began = time.perf_counter()
            await message.ack_sync(timeout=TIMEOUT_S)
            waits.append(time.perf_counter() - began)
    await client.close()
    return waits


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("client", choices=("raw", "nats-py"))
    parser.add_argument("--nats", required=True, help="host:port")
    parser.add_argument("--stream", required=True)
    parser.add_argument("--count", type=int, required=True)
    options = parser.parse_args()
    source = options.nats, options.stream, options.count
    try:
        waits = sorted(
            confirm_raw(*source) if options.client == "raw" else asyncio.run(confirm(*source))
        )
    except (BenchmarkError, OSError) as error:
        print(json.dumps({"failed": str(error) or type(error).__name__}))
        return 1
    told = {
        "p50_ms": 1e3 * waits[len(waits) // 2],
        "p99_ms": 1e3 * waits[len(waits) * 99 // 100],
        "rate": len(waits) / sum(waits),
    }
    print(json.dumps(told))
    return 0


if __name__ == "__main__":
    sys.exit(main())
