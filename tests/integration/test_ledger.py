"""Two ordering nodes as processes over one stream: plain NATS clients, ``kill -9``, damage."""

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from typer.testing import CliRunner

from streamlog.cli.program import app
from streamlog.errors import BlockNotReady, ChannelNotFound, InvalidSignature, RecordTooLarge
from streamlog.ledger.api import LedgerClient
from streamlog.ledger.core.signing import Keyring, Signer
from streamlog.ledger.core.verifier import ChainVerifier
from streamlog.ledger.deliver import Behavior
from tests.integration.ledger_process import LedgerProcess, ledger
from tools.nodes.server_process import wait_until

CLI = ("--channel", "cli")
ALICE = Signer("alice", b"a" * 32)
WAIT_S = 30.0


@pytest.fixture
def new_ledger(tmp_path: Path, dev: Any) -> Iterator[Callable[..., LedgerProcess]]:
    """``new_ledger("node-1", channel, **options)``, started."""
    made: list[LedgerProcess] = []

    def create(name: str, channel: str, **options: Any) -> LedgerProcess:
        process = LedgerProcess(
            tmp_path / name, name, servers=dev.kafka, nats=dev.nats, channel=channel, **options
        )
        made.append(process)
        process.start()
        return process

    yield create
    for process in made:
        process.kill()


async def broadcast(client: Client, channel: str, number: int) -> int:
    """By plain NATS, again until some node says that it is committed; its offset."""
    for _ in range(60):
        try:
            answer = await client.request(
                f"ledger.{channel}.broadcast", b"message %d" % number, timeout=2
            )
        except (nats.errors.TimeoutError, nats.errors.NoRespondersError):
            await asyncio.sleep(0.1)
            continue
        told = json.loads(answer.data)
        if "offset" in told:
            return int(told["offset"])
        await asyncio.sleep(0.1)
    raise TimeoutError(f"message {number} is not committed")


async def until_equal(first: LedgerProcess, second: LedgerProcess, records: int) -> None:
    """Both have so many records or more in their blocks, and nothing pending."""

    def is_so() -> bool:
        infos = [first.info(), second.info()]
        return all(
            info is not None
            and info["pending"] == 0
            and info["high_watermark"]
            and info["tip"] == (infos[0] or {})["tip"]
            and (info["next_offset"] or 0) > records
            for info in infos
        )

    await asyncio.to_thread(wait_until, is_so, "the ledgers are not equal", WAIT_S)


async def test_nodes_that_are_killed_and_restarted_have_the_same_blocks_byte_for_byte(
    new_ledger: Callable[..., LedgerProcess], dev: Any
) -> None:
    options = {"batch_size": 7, "batch_timeout_ms": 30}
    first = new_ledger("node-1", "ledger-kill", **options)
    second = new_ledger("node-2", "ledger-kill", **options)
    client = await nats.connect(dev.nats)
    offsets: list[int] = []
    try:
        for turn in range(2):
            victim = (first, second)[turn % 2]
            sending = [asyncio.create_task(broadcast(client, "ledger-kill", n)) for n in range(80)]
            await asyncio.sleep(0.05)
            victim.kill()
            offsets += await asyncio.gather(*sending)
            victim.spawn()
            await asyncio.to_thread(victim.wait_ready)
        await until_equal(first, second, max(offsets))
    finally:
        await client.close()
    assert len(set(offsets)) == len(offsets)
    reports = [first.verify(), second.verify()]
    assert reports[0] == reports[1]
    assert reports[0]["records"] >= len(offsets) == 160
    assert first.segments() == second.segments()
    assert first.stop() == second.stop() == 0
    assert first.verify() == reports[0]

    first.serve_all_of_its_folder()
    first.start()
    info = first.info()
    assert info is not None
    assert (info["height"], info["stream"]) == (reports[0]["height"], "ledger-kill")
    assert first.stop() == 0


async def test_a_client_has_everything_delivered_by_any_node_and_checks_it(
    new_ledger: Callable[..., LedgerProcess], dev: Any, tmp_path: Path
) -> None:
    key = tmp_path / "node.key"
    made = ledger("keygen", str(key), "--json")
    public_key = json.loads(made.stdout)["public_key"]
    assert key.stat().st_mode & 0o077 == 0
    new_ledger("node-1", "api", batch_size=10, batch_timeout_ms=50, key=key)
    async with LedgerClient(dev.nats) as client:
        acks = await asyncio.gather(
            *(
                client.broadcast("api", b"%d" % n, key=b"k", headers=(("h", b"v"),))
                for n in range(95)
            )
        )
        assert len({ack.offset for ack in acks}) == 95
        large = await client.broadcast("api", b"x" * 900_000)
        verifier, ring = ChainVerifier(channel="api"), Keyring([_identity("node-1", public_key)])
        values: list[Any] = []
        async for block in client.deliver("api"):
            verifier.take(block.encoded)
            assert block.signature is not None
            assert ring.is_block_signed(block.signature, block.block.hash)
            values += [record.value for record in block.records() if record.key == b"k"]
            if block.block.metadata.next_offset > large.offset:
                break
        assert sorted(values) == sorted(b"%d" % n for n in range(95))
        assert verifier.report().records == 96
        numbers = [block.number async for block in client.deliver("api", 2, 5)]
        assert numbers == [2, 3, 4]
        newest = [block.number async for block in client.deliver("api", "newest", "newest")]
        assert newest == [(await client.info("api"))["height"] - 1]
        with pytest.raises(BlockNotReady):
            async for _ in client.deliver("api", 0, 10_000, Behavior.FAIL_IF_NOT_READY):
                pass
        with pytest.raises(ChannelNotFound, match="no node serves channel 'nowhere'"):
            await client.broadcast("nowhere", b"")
        with pytest.raises(ChannelNotFound):
            async for _ in client.deliver("nowhere"):
                pass


def _identity(name: str, public_key: str) -> Any:
    from streamlog.ledger.core.channel_config import Identity

    return Identity(name=name, public_key=public_key)


async def test_readers_and_writers_are_who_the_configuration_says(
    new_ledger: Callable[..., LedgerProcess], dev: Any, tmp_path: Path
) -> None:
    genesis = tmp_path / "genesis.json"
    alice = ALICE.identity.model_dump()
    genesis.write_text(json.dumps({"writers": [alice], "readers": [alice]}))
    new_ledger("node-1", "private", genesis=genesis, batch_size=1, absolute_max_bytes=10_000,
               preferred_max_bytes=10_000)  # fmt: skip
    async with LedgerClient(dev.nats) as anybody, LedgerClient(dev.nats, signer=ALICE) as us:
        await us.broadcast("private", b"secret")
        with pytest.raises(InvalidSignature):
            await anybody.broadcast("private", b"forged")
        with pytest.raises(RecordTooLarge):
            await us.broadcast("private", b"x" * 20_000)
        read = [block async for block in us.deliver("private", 1, 2)]
        assert [record.value for record in read[0].records()] == [b"secret"]
        with pytest.raises(InvalidSignature, match="read by some only"):
            async for _ in anybody.deliver("private"):
                pass
        stranger = LedgerClient(dev.nats, signer=Signer("alice", b"x" * 32))
        async with stranger:
            with pytest.raises(InvalidSignature, match="not that of 'alice'"):
                async for _ in stranger.deliver("private"):
                    pass


async def test_a_reader_that_is_slow_holds_up_nobody_else(
    new_ledger: Callable[..., LedgerProcess], dev: Any
) -> None:
    process = new_ledger("node-1", "slow", batch_size=1)
    async with LedgerClient(dev.nats) as client:
        await asyncio.gather(*(client.broadcast("slow", b"x" * 50_000) for _ in range(120)))
        slow = client.deliver("slow")
        assert (await anext(slow)).number == 0
        quick = [block.number async for block in client.deliver("slow", stop=121)]
        assert quick == list(range(121))
        rest = [block.number async for block in _first(slow, 120)]
        assert rest == list(range(1, 121))
    assert process.is_running()


async def _first(blocks: Any, count: int) -> Any:
    async for block in blocks:
        yield block
        count -= 1
        if not count:
            break
    await blocks.aclose()


def test_the_command_line_does_it_all(new_ledger: Callable[..., LedgerProcess], dev: Any) -> None:
    process = new_ledger("node-1", "cli", batch_size=2, batch_timeout_ms=50)
    at = ("--nats-server", dev.nats)
    told = run("broadcast", *CLI, "--lines", "--json", *at, stdin=b"one\ntwo\nthree\n")
    assert json.loads(told)["broadcast"] == 3
    lines = run("deliver", *CLI, "--stop", "3", "--values", *at).splitlines()
    assert lines[1:] == ["one", "two", "three"]
    lines = run("deliver", *CLI, "--stop", "3", *at).splitlines()
    blocks = [json.loads(line) for line in lines]
    assert [block["number"] for block in blocks] == [0, 1, 2]
    assert blocks[2]["previous_hash"] == blocks[1]["hash"]
    assert "block 3" in run("configure", *CLI, "--batch-size", "1", *at)
    shown = json.loads(run("info", *CLI, "--json", *at))
    assert shown["config"]["limits"]["batch_size"] == 1
    assert "cli" in run("info", *CLI, *at)
    assert process.verify()["configurations"] == 2
    missing = ("--start", "99", "--stop", "100", "--behavior", "fail_if_not_ready")
    for arguments, said in (
        (("broadcast", "--channel", "nowhere", "x"), "no node serves channel 'nowhere'"),
        (("deliver", *CLI, *missing), "not cut yet"),
        (("configure", *CLI, "--batch-size", "0"), "limits.batch_size"),
        (("info", *CLI, "--node", "node-9"), "no node 'node-9' serves channel 'cli'"),
    ):
        done = CliRunner().invoke(app, ["ledger", *arguments, *at])
        assert done.exit_code == 1
        assert said in repr(done.exception)  # which may be in a group
    done_for_real = ledger("info", "--channel", "nowhere", *at)
    assert done_for_real.returncode == 1
    assert len(done_for_real.stderr.splitlines()) == 1


def run(*arguments: str, stdin: bytes = b"") -> str:
    done = CliRunner().invoke(app, ["ledger", *arguments], input=stdin)
    assert done.exit_code == 0, done.exception
    return done.stdout
