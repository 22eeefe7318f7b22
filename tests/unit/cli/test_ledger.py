"""``streamlog ledger`` without a cluster: files, keys, and what is refused at once."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from streamlog.cli.ledger.options import limits_of
from streamlog.cli.program import app
from streamlog.ledger.core.chain import ChainTip, genesis_block
from streamlog.ledger.core.channel_config import ChannelConfig
from streamlog.ledger.core.consenter import AppendBlock, Consenter, RecordsConsumed
from streamlog.ledger.core.encoding import encode_block
from streamlog.ledger.core.entry import configuration
from streamlog.ledger.storage.folder import ChannelFile, LedgerFolder
from streamlog.ledger.storage.store import BlockStore
from streamlog.log.storage.disk import OsDisk
from streamlog.record.codec import Record

C = ("--channel", "c")
SERVE = ("serve", "--dir", "/tmp/x")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Channels ``a`` and ``b`` with a genesis and four blocks of five records each."""
    for name in "ab":
        config = ChannelConfig(channel=name)
        config = config.model_copy(
            update={"limits": config.limits.model_copy(update={"batch_size": 5})}
        )
        message = configuration(config)
        genesis = genesis_block(Record(0, 5, message.key, message.value, message.headers))
        assert genesis is not None
        records = [Record(offset, 6, None, b"%d" % offset, ()) for offset in range(1, 21)]
        effects = Consenter(ChainTip.of(genesis), config).step(RecordsConsumed(records))
        blocks = [genesis, *(each.block for each in effects if isinstance(each, AppendBlock))]
        opened = LedgerFolder.open(tmp_path / "ledger", OsDisk())
        opened.write(ChannelFile(channel=name, stream=name))
        store = BlockStore.open(opened.blocks(name), OsDisk())
        store.append(0, [encode_block(block) for block in blocks])
        store.close()
        opened.close()
    return tmp_path / "ledger"


def run(*arguments: object) -> str:
    done = CliRunner().invoke(app, ["ledger", *map(str, arguments)])
    assert done.exit_code == 0, done.exception
    return done.stdout


def refused(*arguments: object) -> str:
    done = CliRunner().invoke(app, ["ledger", *map(str, arguments)])
    assert done.exit_code == 1
    return str(done.exception)


def test_verify_counts_what_is_in_the_files(folder: Path) -> None:
    found = json.loads(run("verify", folder, "--channel", "a", "--json"))
    tip = found.pop("tip")
    assert found == {"height": 5, "records": 20, "configurations": 1}
    assert len(bytes.fromhex(tip)) == 32
    assert json.loads(run("verify", folder / "a", "--json"))["tip"] == tip
    assert json.loads(run("verify", folder / "a" / "blocks", "--json"))["tip"] == tip
    assert "5 blocks, 20 records, 1 configurations: one chain" in run("verify", folder / "b")


def test_verify_says_which_folder_it_wants(folder: Path, tmp_path: Path) -> None:
    assert "has several channels" in refused("verify", folder)
    assert "has no channel 'c'; it has a, b" in refused("verify", folder, "--channel", "c")
    (tmp_path / "empty").mkdir()
    assert "is no folder of a ledger" in refused("verify", tmp_path / "empty")


def test_verify_finds_every_flipped_byte(folder: Path) -> None:
    (segment,) = (folder / "a" / "blocks").glob("*.log")
    whole = segment.read_bytes()
    for position in range(0, len(whole), 97):
        damaged = bytearray(whole)
        damaged[position] ^= 1
        segment.write_bytes(damaged)
        assert "block" in refused("verify", folder / "a")


def test_verify_finds_another_channel_s_blocks(folder: Path) -> None:
    for file in (folder / "b" / "blocks").iterdir():
        file.rename(folder / "a" / "blocks" / file.name)
    assert "of channel 'b' in that of 'a'" in refused("verify", folder / "a")


def test_a_key_is_its_owner_s_alone(tmp_path: Path) -> None:
    file = tmp_path / "alice.key"
    public_key = run("keygen", file).strip()
    assert len(bytes.fromhex(public_key)) == 32
    assert file.stat().st_mode & 0o777 == 0o600
    shown = json.loads(run("keygen", file, "--show", "--json"))
    assert shown == {"name": "alice", "public_key": public_key}
    assert "is there already" in refused("keygen", file)
    assert file.read_text().strip() not in run("keygen", file, "--show")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("broadcast", *C, "x", "--key", "/nowhere"),
            "--key: /nowhere: .*; make one by",
        ),
        (("broadcast", *C, "x", "--name", "alice"), "--name: there is no key"),
        (("broadcast", *C, "x", "-H", "novalue"), "--header: 'novalue' is no header"),
        (
            ("deliver", *C, "--start", "first"),
            "--start: 'first' is neither; write a block's number",
        ),
        (("deliver", *C, "--stop", "-1"), "--stop: '-1' is neither"),
        (("configure", *C), "nothing is to be changed"),
        (("configure", *C, "--writer", "alice"), "--writer: 'alice' names no key"),
        ((*SERVE, "--batch-size", "5"), "--channel: options of a new channel"),
        ((*SERVE, "--channel", "a.b"), "--channel: 'a.b' cannot be so"),
        ((*SERVE, *C, "--batch-size", "0"), "limits.batch_size"),
        (
            (*SERVE, *C, "--preferred-max-bytes", "99999999"),
            "preferred_max_bytes is above absolute_max_bytes",
        ),
        ((*SERVE, *C, "--node", "a b"), "--node: 'a b' cannot"),
        ((*SERVE, *C, "--genesis", "/nowhere"), "--genesis"),
        ((*SERVE, *C, "--bootstrap-server", "x"), "servers: 'x'"),
    ],
)
def test_what_cannot_be_is_refused_before_anybody_is_asked(
    arguments: tuple[str, ...], said: str
) -> None:
    import re

    text = refused(*arguments)
    assert re.search(said, text)
    assert "\n" not in text


def test_limits_that_are_given_have_the_names_of_the_configuration() -> None:
    limits = ChannelConfig(channel="c").limits
    assert limits_of(None, None, None, None) == {}
    assert limits_of(7, None, None, 9) == {"batch_size": 7, "absolute_max_bytes": 9}
    assert set(limits_of(1, 2, 3, 4)) <= set(type(limits).model_fields)
    assert list(limits_of(1, 2, 3, 4).values()) == [1, 2, 3, 4]
