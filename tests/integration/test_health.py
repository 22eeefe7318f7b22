"""``streamlog health``, the probe of containers, beside real nodes with listeners of each kind."""

import os
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.certificate_authority import BY_NAME, CertificateAuthority
from tools.nodes.node_process import NodeProcess
from tools.nodes.server_process import NatsServer, program, wait_until

NewNode = Callable[..., NodeProcess]
TOKEN = "a-token-of-some-length"


def probe(node: NodeProcess, *options: str) -> tuple[int, str]:
    """Exit code and what was said; an error is one line."""
    command = [program("streamlog"), "health", "--config", str(node.config), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert len(done.stderr.splitlines()) <= 1, done.stderr
    return done.returncode, done.stdout + done.stderr


def test_a_node_in_the_clear(new_node: NewNode, nats_server: NatsServer) -> None:
    node = new_node()
    code, said = probe(node)
    assert code == 1
    assert f"http://127.0.0.1:{node.http_port} does not answer" in said and "refused" in said
    node.start()
    assert probe(node) == (0, f"http://127.0.0.1:{node.http_port} is alive\n")
    assert probe(node, "--ready") == (0, f"http://127.0.0.1:{node.http_port} is ready\n")
    nats_server.kill()
    wait_until(lambda: probe(node, "--ready")[0] == 1, "it is ready without NATS")
    assert re.search(r"is not ready: nats: .+", probe(node, "--ready")[1])
    assert probe(node)[0] == 0, "what is not ready is alive all the same"
    os.kill(node.pid, signal.SIGSTOP)
    try:
        code, said = probe(node, "--timeout", "0.3")
    finally:
        os.kill(node.pid, signal.SIGCONT)
    assert (code, "timed out" in said) == (1, True), said


def test_a_node_behind_tls_with_a_certificate_for_another_name(
    new_node: NewNode, tmp_path: Path
) -> None:
    node, authority = new_node(), CertificateAuthority(tmp_path / "ca")
    node.add_settings(tls={**authority.issue("node", "node-1.example").settings()})
    node.spawn()
    wait_until(lambda: probe(node, "--ready")[0] == 0, f"not ready:\n{node.log_text()[-2000:]}")
    assert probe(node) == (0, f"https://127.0.0.1:{node.http_port} is alive\n")
    assert node.http("/healthz")[0] == 0, "HTTP is not spoken in the clear"
    command = [program("streamlog"), "doctor", "--config", str(node.config)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert f"ok       clocks: the clock of node at 127.0.0.1:{node.http_port} is" in done.stdout
    assert re.search(r"ok       certificates: tls.cert: .*CN=node.* in 29 days", done.stdout)


@pytest.mark.parametrize("page", [False, True], ids=["one certificate", "one of HTTP's own"])
def test_a_node_that_wants_certificates_and_tokens(
    new_node: NewNode, tmp_path: Path, page: bool
) -> None:
    node, authority = new_node(), CertificateAuthority(tmp_path / "ca")
    tokens = tmp_path / "tokens"
    tokens.write_text(TOKEN)
    own = authority.issue("node", password=b"of-the-key")
    (tmp_path / "word").write_text("of-the-key\n")
    tls = {"client_ca": authority.ca, "client_auth": "required",
           "key_password_file": tmp_path / "word"}  # fmt: skip
    http: dict[str, object] = {"token_file": tokens}
    if page:
        other = CertificateAuthority(tmp_path / "other").issue("page")
        http |= {"tls_cert": other.cert, "tls_key": other.key}
    node.add_settings(tls={**own.settings(), **tls}, http=http, sasl=BY_NAME)
    node.spawn()
    wait_until(lambda: probe(node, "--ready")[0] == 0, f"not ready:\n{node.log_text()[-2000:]}")
    assert probe(node)[0] == 0


def test_what_cannot_be_asked_is_a_wrong_setting(new_node: NewNode, tmp_path: Path) -> None:
    node = new_node()
    node.add_settings(tls={"cert": tmp_path / "none.pem", "key": tmp_path / "none.pem"})
    assert probe(node)[0] == 1, "nobody asks for its certificate"
    node.add_settings(http={"tls_cert": "x"})
    code, said = probe(node)
    assert (code, "tls_cert and tls_key are needed" in said) == (2, True), said
