"""New connections, one after the other: each asks what versions are spoken, logs in, and ends.

``python -m benchmarks.connecting ...`` prints one line of JSON.
"""

import argparse
import json
import ssl
import sys
import time
from collections.abc import Mapping

from streamlog.client.blocking import BlockingConnection
from streamlog.client.security import ClientLogin

WARM_UP: int = 5


def connect(server: str, settings: Mapping[str, str], count: int) -> dict[str, float]:
    """The settings are those of confluent-kafka; the handshakes are OpenSSL's."""
    host, _, port = server.rpartition(":")
    context = None
    if ca := settings.get("ssl.ca.location"):
        context = ssl.create_default_context(cafile=ca)
        if cert := settings.get("ssl.certificate.location"):
            context.load_cert_chain(cert, settings["ssl.key.location"])
    login = None
    if user := settings.get("sasl.username"):
        login = ClientLogin(settings["sasl.mechanisms"], user, lambda: settings["sasl.password"])
    for _ in range(WARM_UP):
        BlockingConnection.open(host, int(port), tls=context, login=login).close()
    start, cpu = time.perf_counter(), time.process_time()
    for _ in range(count):
        BlockingConnection.open(host, int(port), tls=context, login=login).close()
    elapsed = time.perf_counter() - start
    return {
        "connects": count / elapsed,
        "messages": WARM_UP + count,
        "elapsed_s": elapsed,
        "client_cpu_s": time.process_time() - cpu,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", required=True, help="host:port")
    parser.add_argument("--settings", default="{}", help="of confluent-kafka, as JSON")
    parser.add_argument("--count", type=int, required=True)
    options = parser.parse_args()
    print(json.dumps(connect(options.server, json.loads(options.settings), options.count)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
