"""Ordering nodes as processes over a node that demands TLS and a login, and their own HTTP port."""

import asyncio
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from streamlog.errors import NotAuthorized
from streamlog.ledger.api import LedgerClient
from tests.certificate_authority import write
from tests.guarded_node import SealedNode, sealed_node
from tests.integration.ledger_process import LedgerProcess
from tools.nodes.ports import free_port
from tools.nodes.server_process import wait_until

pytestmark = pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning")
COUNT = 25


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SealedNode]:
    """``orderer`` may read and write what begins with ``chain``, and make such a stream."""
    with sealed_node(tmp_path_factory.mktemp("sealed")) as node:
        for user in ("orderer", "reader"):
            node.admin("user", "add", user, "--new-password-file", str(node.password_file(user)))
        for operation in ("read", "write", "create", "describe_configs"):
            node.admin("acl", "add", "-p", "User:orderer", "-o", operation, "-t", "chain*")
        for operation in ("read", "describe_configs"):
            node.admin("acl", "add", "-p", "User:reader", "-o", operation, "-t", "chain*")
        yield node


@pytest.fixture
def new_ledger(tmp_path: Path, sealed: SealedNode) -> Iterator[Callable[..., LedgerProcess]]:
    """``new_ledger("node-1", channel, user, **options)``, not started."""
    made: list[LedgerProcess] = []

    def create(name: str, channel: str, user: str | None, **options: Any) -> LedgerProcess:
        if user is not None:
            options = {"user": user, "password_file": sealed.password_file(user), **options}
        options.setdefault("tls_ca", sealed.ca)
        process = LedgerProcess(
            tmp_path / name, name, servers=sealed.kafka, nats=sealed.nats_url, channel=channel,
            **options,
        )  # fmt: skip
        made.append(process)
        return process

    yield create
    for process in made:
        process.kill()


async def ordered(nats: str, channel: str) -> list[bytes]:
    """What is broadcast, as it is delivered after the configuration."""
    async with LedgerClient(nats) as client:
        for number in range(COUNT):
            await client.broadcast(channel, b"%d" % number)
        values: list[bytes] = []
        async for block in client.deliver(channel):
            values += [record.value or b"" for record in block.records()]
            if len(values) > COUNT:
                break
        return values[1:]


def test_blocks_are_cut_out_of_a_guarded_cluster(
    sealed: SealedNode, new_ledger: Callable[..., LedgerProcess]
) -> None:
    """By two nodes, one of them by a password, the other by a certificate; the stream is new."""
    options = {"batch_size": 10, "batch_timeout_ms": 200}
    first = new_ledger("node-1", "chain", "orderer", **options)
    first.start()
    own = sealed.known.issue("orderer")
    second = new_ledger("node-2", "chain", None, tls_cert=own.cert, tls_key=own.key, **options)
    second.start()
    values = asyncio.run(asyncio.wait_for(ordered(sealed.nats_url, "chain"), 60))
    assert values == [b"%d" % number for number in range(COUNT)]
    wait_until(
        lambda: bool(first.segments()) and first.segments() == second.segments(), "not one chain"
    )
    for process in (first, second):
        assert process.stop() == 0, process.log_text()
    assert first.verify()["records"] == COUNT
    assert "orderer-secret" not in first.log_text()


def test_who_is_not_let_in_waits_and_says_why(
    sealed: SealedNode, new_ledger: Callable[..., LedgerProcess]
) -> None:
    """And orders as soon as the password is right, without a restart."""
    guess = sealed.directory / "guess"
    guess.write_text("guessed\n")
    process = new_ledger("node-1", "chain-2", "orderer", password_file=guess)
    process.start()
    told = "channel is not let in"
    wait_until(lambda: told in process.log_text(), "it does not say so")
    assert "wrong user or password" in (process.info() or {})["problem"]
    assert "guessed" not in process.log_text()
    write(guess, b"orderer-secret\n")
    wait_until(lambda: (process.info() or {})["problem"] == "", "it is not let in")
    assert asyncio.run(asyncio.wait_for(ordered(sealed.nats_url, "chain-2"), 60))[-1] == b"24"


def test_who_lacks_a_right_orders_nothing(
    sealed: SealedNode, new_ledger: Callable[..., LedgerProcess]
) -> None:
    """To write: nothing is broadcast. To know of the stream: there is no chain."""
    process = new_ledger("node-1", "chain-3", "orderer")
    process.start()
    wait_until(lambda: (process.info() or {})["height"] > 0, "there is no chain")
    process.stop()
    reader = new_ledger("reader", "chain-3", "reader")
    reader.start()
    wait_until(lambda: (reader.info() or {})["height"] > 0, "it does not read")
    with pytest.raises(NotAuthorized, match="a producer's id"):
        asyncio.run(ordered(sealed.nats_url, "chain-3"))
    reader.stop()
    nobody = new_ledger("nobody", "chain-3", "alice")
    nobody.start()
    wait_until(lambda: "topic authorization failed" in nobody.log_text(), "it does not say so")


def get(port: int, path: str, token: str = "", context: ssl.SSLContext | None = None) -> int:
    """The status; 0 where nobody answers."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    address = f"{'https' if context else 'http'}://127.0.0.1:{port}{path}"
    try:
        request = urllib.request.Request(address, headers=headers)
        with urllib.request.urlopen(request, timeout=5, context=context) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except OSError:
        return 0


TOKEN = "a-token-of-an-ordering-node"


def test_its_metrics_are_locked_as_a_nodes(
    sealed: SealedNode, new_ledger: Callable[..., LedgerProcess]
) -> None:
    tokens, port = sealed.directory / "tokens", free_port()
    tokens.write_text(TOKEN + "\n")
    own = sealed.known.issue("ledger")
    process = new_ledger(
        "node-1", "chain-4", "orderer", http_port=port, http_host="0.0.0.0",
        http_token_file=tokens, http_tls_cert=own.cert, http_tls_key=own.key,
    )  # fmt: skip
    process.start()
    anybody = sealed.known.client()
    wait_until(lambda: get(port, "/readyz", "", anybody) == 200, "it is not ready")
    assert get(port, "/healthz", "", anybody) == 200
    for wrong in ("", "guessed", TOKEN[:-1]):
        assert get(port, "/metrics", wrong, anybody) == 401
        assert get(port, "/no-such-page", wrong, anybody) == 401
    assert get(port, "/metrics", TOKEN, anybody) == 200
    assert get(port, "/metrics", TOKEN) == 0, "in the clear"
    process.stop()
    mutual = new_ledger(
        "node-2", "chain-4", "orderer", http_port=port, http_client_ca=sealed.ca,
        http_tls_cert=own.cert, http_tls_key=own.key,
    )  # fmt: skip
    mutual.start()
    known = sealed.known.client(sealed.certificates["alice"])
    wait_until(lambda: get(port, "/readyz", "", known) == 200, "it is not ready")
    assert get(port, "/metrics", "", known) == 200
    assert get(port, "/metrics", "", anybody) == 0
