"""A command's connection, which tries once."""

from pathlib import Path

import pytest

from streamlog.config import NatsSection
from streamlog.errors import ConfigError, NodeUnreachable
from streamlog.nats_tools.connect import connect_once


async def test_credentials_of_a_command(tmp_path: Path) -> None:
    section = NatsSection(servers=("a:1",), credentials=tmp_path / "none")
    with pytest.raises(ConfigError, match="credentials"):
        await connect_once(section, timeout_s=1)


async def test_nobody_is_there(unused_tcp_port: int) -> None:
    with pytest.raises(NodeUnreachable, match=f"NATS at nats://127.0.0.1:{unused_tcp_port}: "):
        await connect_once(f"nats://127.0.0.1:{unused_tcp_port}", timeout_s=1)


async def test_what_is_said_of_it_has_no_password(unused_tcp_port: int) -> None:
    with pytest.raises(NodeUnreachable) as caught:
        await connect_once(f"nats://me:hunter2@127.0.0.1:{unused_tcp_port}", timeout_s=1)
    assert "hunter2" not in str(caught.value)
