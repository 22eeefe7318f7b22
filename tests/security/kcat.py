"""kcat, librdkafka's command line: lists, writes and reads as somebody."""

import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Final, NamedTuple

from tests.signed_tokens import token

PROGRAM: Final = shutil.which("kcat")
PATIENCE_S: Final = 20.0
REFUSED_S: Final = 3
"""For how long it tries again where it is not let in."""

Way = Mapping[str, str]
"""librdkafka's settings: as whom, by what."""


def fetches_tokens() -> bool:
    """Whether this kcat can; Debian's cannot."""
    assert PROGRAM is not None, "there is no kcat"
    command = [PROGRAM, "-X", "sasl.oauthbearer.method=oidc", "-L", "-b", "127.0.0.1:1", "-m", "1"]
    said = subprocess.run(command, capture_output=True, check=False, timeout=PATIENCE_S)
    return b"not supported in this build" not in said.stderr


class Said(NamedTuple):
    code: int
    out: bytes
    err: str


class Kcat(NamedTuple):
    """``servers``: of any nodes."""

    servers: str

    def list(self, way: Way) -> Said:
        return self._run(way, "-L", "-J", "-m", str(REFUSED_S))

    def topics(self, way: Way) -> set[str]:
        said = self.list(way)
        assert said.code == 0, said
        return {it["topic"] for it in json.loads(said.out)["topics"]}

    def produce(self, way: Way, topic: str, *values: bytes) -> Said:
        haste = {"message.timeout.ms": str(REFUSED_S * 1000)}
        return self._run({**haste, **way}, "-P", "-t", topic, "-p", "0", put=b"\n".join(values))

    def consume(self, way: Way, topic: str) -> Said:
        """All there is."""
        return self._run(way, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q")

    def consume_nothing(self, way: Way, topic: str) -> Said:
        """Where nothing is to be had it would try for ever."""
        return self._run(
            way, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", timeout_s=REFUSED_S
        )

    def _run(
        self, way: Way, *options: str, put: bytes = b"", timeout_s: float = PATIENCE_S
    ) -> Said:
        assert PROGRAM is not None, "there is no kcat"
        settings = [word for key, value in way.items() for word in ("-X", f"{key}={value}")]
        command = [PROGRAM, "-b", self.servers, *settings, *options]
        ended = -1
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as kcat:
            try:
                out, err = kcat.communicate(put, timeout_s)
                ended = kcat.returncode
            except subprocess.TimeoutExpired:
                kcat.kill()
                out, err = kcat.communicate()
        return Said(ended, out, err.decode(errors="replace"))


def by_password(mechanism: str, user: str, password: str, ca: Path) -> Way:
    return {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(ca),
        "sasl.mechanisms": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }


def by_unsigned_token(user: str, ca: Path) -> Way:
    """One that it makes itself; nobody has signed it."""
    return {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(ca),
        "sasl.mechanisms": "OAUTHBEARER",
        "enable.sasl.oauthbearer.unsecure.jwt": "true",
        "sasl.oauthbearer.config": f"principal={user}",
    }


def by_token(endpoint: str, ca: Path) -> Way:
    """kcat cannot be given a token; it fetches one where an OpenID provider has them, if its
    librdkafka has been built with libcurl.
    """
    return {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(ca),
        "sasl.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": "kcat",
        "sasl.oauthbearer.client.secret": "of-kcat",
        "sasl.oauthbearer.token.endpoint.url": endpoint,
    }


@contextmanager
def token_endpoint(**claims: Any) -> Iterator[str]:
    """Who asks there, whoever it is, gets a token with these claims; its address."""

    class Endpoint(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            granted = {"access_token": token(**claims), "token_type": "Bearer", "expires_in": 3600}
            body = json.dumps(granted).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Endpoint) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/token"
        finally:
            server.shutdown()
            thread.join()
