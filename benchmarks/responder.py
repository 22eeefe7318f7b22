"""A NATS client that acknowledges every message and stores nothing.

The publisher against it shows what nats-server itself allows: a message in, routed to one listener,
an ack out, routed back. No server that gets its messages from NATS can acknowledge much faster.
"""

import re
import sys

from benchmarks.connection import BenchmarkError, Connection

_REPLY = re.compile(rb"MSG bench\.\S+ 1 (\S+) \d+\r\n")
_ACK = b' 34\r\n{"stream":"bench","seq":123456789}\r\n'


def main() -> None:
    with Connection(sys.argv[1]) as connection:
        connection.subscribe("bench.>", 1)
        print("ready", flush=True)
        kept = b""
        try:
            while True:
                data = kept + connection.receive()
                end = data.rfind(b"\n") + 1  # a line that is cut waits for its rest
                kept = data[end:]
                replies = _REPLY.findall(data, 0, end)
                if replies:
                    separator = _ACK + b"PUB "
                    connection.send(b"PUB " + separator.join(replies) + _ACK)
        except (BenchmarkError, OSError):
            return


if __name__ == "__main__":
    main()
