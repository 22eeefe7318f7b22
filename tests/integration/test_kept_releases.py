"""What earlier releases left on the disk and in configurations is read by this one."""

import asyncio
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nats
import pytest
from confluent_kafka.admin import AdminClient

from streamlog import __version__
from streamlog.config import load_settings
from tests.kept.release import GROUP, KEPT, USER, committed_of, records_of
from tools.nodes.node_process import NodeProcess
from tools.nodes.server_process import NatsServer

RELEASES = sorted(it.parent for it in KEPT.glob("*/node.toml"))


def test_this_version_is_kept() -> None:
    """``python -m tests.kept.release`` keeps it, once, when it is released."""
    assert __version__ in [it.name for it in RELEASES]


@pytest.mark.parametrize("release", RELEASES, ids=lambda it: it.name)
def test_its_configuration_is_read(release: Path) -> None:
    load_settings(release / "node.toml")


@pytest.mark.parametrize("release", RELEASES, ids=lambda it: it.name)
def test_its_data_folder_is_read_and_written_on(
    release: Path, tmp_path: Path, nats_server: NatsServer, new_node: Callable[..., NodeProcess]
) -> None:
    with tarfile.open(release / "data.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    node = new_node(data_dir=tmp_path / "data", metadata_reserve_bytes=65_536)
    node.start()
    lines = map(json.loads, (release / "records.jsonl").read_text().splitlines())
    expected: dict[str, list[Any]] = {}
    for name, *record in lines:
        expected.setdefault(name, []).append(record)
    assert records_of(node.kafka) == expected
    assert committed_of(node.kafka) == 123, GROUP
    admin = AdminClient({"bootstrap.servers": node.kafka})
    asked: Any = admin.describe_user_scram_credentials([USER])
    users = asked[USER].result(60)
    assert [it.iterations for it in users.scram_credential_infos] == [4096]
    asyncio.run(_publishes_on(nats_server.url, len(expected["orders/0"])))
    assert "damage" not in node.log_text()


async def _publishes_on(url: str, end: int) -> None:
    client = await nats.connect(url)
    js = client.jetstream(domain="streamlog")
    acknowledged = await js.publish("orders.1", b"more", timeout=30)
    assert acknowledged.seq == end + 1
    with pytest.raises(Exception, match=r"sealed|no response"):
        await js.publish("sealed.1", b"more", timeout=5)
    await client.close()
