from importlib.util import find_spec
from pathlib import Path

import pytest

from streamlog.config import NatsSection
from streamlog.errors import ConfigError, NodeUnreachable
from streamlog.ingest.servers import connect_once, connect_options


def test_options_never_give_up() -> None:
    options = connect_options(NatsSection(servers=("a:1", "tls://b:2"), user="u"), name="n")
    assert options["servers"] == ["a:1", "tls://b:2"]
    assert (options["user"], options["max_reconnect_attempts"]) == ("u", -1)


def test_other_transports_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"nats.servers: 'ws://a' is not supported"):
        connect_options(NatsSection(servers=("ws://a",)), name="n")


def test_credentials_that_cannot_be_used(tmp_path: Path) -> None:
    expected = "is not a file" if find_spec("nkeys") else "nkeys"
    with pytest.raises(ConfigError, match=expected):
        connect_options(NatsSection(credentials=tmp_path / "none"), name="n")


async def test_credentials_of_a_command(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="credentials"):
        await connect_once(["a:1"], timeout_s=1, user_credentials=str(tmp_path / "none"))


async def test_one_attempt_only(unused_tcp_port: int) -> None:
    with pytest.raises(NodeUnreachable, match=f"127.0.0.1:{unused_tcp_port}"):
        await connect_once([f"nats://127.0.0.1:{unused_tcp_port}"], timeout_s=1)
