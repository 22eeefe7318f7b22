"""The folder of an ordering node, and the registrar that starts what is in it."""

import asyncio
from pathlib import Path
from uuid import uuid4

import pytest

from streamlog.errors import ChannelNotFound, ConfigError, CorruptFile, OtherChannel
from streamlog.ledger.channel.channel import Channel
from streamlog.ledger.node import Registrar
from streamlog.ledger.storage.folder import ChannelFile, LedgerFolder
from streamlog.log.storage.disk import OsDisk
from tests.kafka_node import KafkaNode
from tests.ledger_channel import config_of


def folder_in(path: Path) -> LedgerFolder:
    return LedgerFolder.open(path, OsDisk())


def registrar_of(folder: LedgerFolder, servers: str = "127.0.0.1:1") -> Registrar:
    return Registrar(folder, lambda file: Channel(folder, file, servers=servers, node="n"))


def test_one_process_at_a_time(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    with pytest.raises(ConfigError, match=r"--dir: .* is in use by another process; stop that"):
        folder_in(tmp_path)
    folder.close()
    folder_in(tmp_path).close()


def test_a_folder_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be used"):
        folder_in(tmp_path / "file")


async def test_channels_are_found_again(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    files = [
        ChannelFile(channel="a", stream="s", topic_id=uuid4()),
        ChannelFile(channel="b", stream="t", genesis=config_of("b")),
    ]
    for file in files:
        folder.write(file)
    assert folder.channels() == ["a", "b"]
    assert [await folder.read(name) for name in "ab"] == files
    folder.close()


async def test_what_is_wrong_with_a_channel_s_file_is_told(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    with pytest.raises(ChannelNotFound, match="is no channel's folder"):
        await folder.read("a")
    folder.write(ChannelFile(channel="a", stream="s"))
    folder.close()
    (tmp_path / "a").rename(tmp_path / "b")
    with pytest.raises(OtherChannel, match="is the folder of channel 'a'"):
        await folder.read("b")
    file = tmp_path / "b" / "channel.json"
    file.write_text('{"format": 9, "channel": "b", "stream": "s"}')
    with pytest.raises(CorruptFile, match="a later streamlog"):
        await folder.read("b")
    file.write_text("{")
    with pytest.raises(CorruptFile, match="cannot be read"):
        await folder.read("b")


async def test_a_channel_that_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    for name in "ab":
        folder.write(ChannelFile(channel=name, stream=name))
    (tmp_path / "a" / "channel.json").write_text("{")
    registrar = registrar_of(folder)
    await registrar.load()
    assert list(registrar.channels) == ["b"]
    assert registrar.channel("b").stream == "b"
    with pytest.raises(ChannelNotFound, match="no channel 'c' here, but b"):
        registrar.channel("c")
    with pytest.raises(ConfigError, match="--stream: channel 'b' here orders stream 'b'"):
        registrar.add(ChannelFile(channel="b", stream="other"))
    assert registrar.add(ChannelFile(channel="b", stream="b")) is registrar.channel("b")
    folder.close()


async def test_one_that_halts_disturbs_no_other(tmp_path: Path, node: KafkaNode) -> None:
    await node.add_stream("wide", partitions=3)
    folder = folder_in(tmp_path)
    registrar = registrar_of(folder, node.address)
    for name in ("good", "wide"):
        registrar.add(ChannelFile(channel=name, stream=name))
    opened: list[str] = []

    async def note(channel: Channel) -> None:
        opened.append(channel.name)

    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(registrar.run(note))
        await registrar.channel("good").ready.wait()
        while not registrar.channel("wide").is_halted:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        assert sorted(opened) == ["good", "wide"]
        assert registrar.channel("good").ledger.height == 1
        running.cancel()
    folder.close()
