"""Backups of a running cluster and of its folders; streams and clusters made of them again."""

import asyncio
import contextlib
import json
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamlog.backup.manifest import decode_manifest, encode_manifest
from streamlog.client.cluster import Cluster
from streamlog.model import TopicPartition
from streamlog.wire import registry
from streamlog.wire.error_codes import ErrorCode
from streamlog.wire.produce import ACKS_AS_STORED
from tests.cluster_cli import Cli
from tests.integration.conftest import lasting_dev
from tests.log_folder import make_batch
from tests.small_disk import mounted
from tools.nodes import cluster as processes
from tools.nodes.dev import Dev
from tools.nodes.node_process import NodeProcess
from tools.nodes.server_process import program, wait_until

COUNT = 300


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dev]:
    """One for these tests alone: they take all that there is."""
    yield from lasting_dev(tmp_path_factory)


@pytest.fixture
def one(dev: Dev) -> Cli:
    return Cli(dev)


@pytest.fixture
def backup(tmp_path: Path) -> str:
    return str(tmp_path / "backup")


def made(cli: Cli, name: str, *options: str, count: int = COUNT) -> None:
    cli.ok(f"stream add {name}", *options)
    cli.ok(f"publish {name} some-value --count {count} --ack", "--header", "Kind: test")


def rows(cli: Cli, name: str) -> list[dict[str, Any]]:
    """Every record as JSON, without the name of the stream."""
    return [json.loads(line) for line in cli.ok(f"consume {name} --json").splitlines()]


def pieces(backup: str) -> list[Path]:
    return sorted(Path(backup).glob("streams/*/*/*.log"))


# Into a running cluster


def test_a_stream_comes_back_as_it_was(one: Cli, backup: str) -> None:
    made(one, "whole", "--description", "of orders", "--max-age", "1d")
    before, config = rows(one, "whole"), one.json("stream info whole")["config"]
    assert len(before) == COUNT
    assert "300 records" in one.ok(f"backup create {backup} --stream whole")
    one.ok("stream rm whole --yes")
    assert "300 records" in one.ok(f"backup restore stream {backup} whole")
    assert rows(one, "whole") == before
    assert one.json("stream info whole")["config"] == config
    assert one.json("publish whole more --ack")["last_offset"] == COUNT


def test_what_has_come_since_is_added(one: Cli, backup: str) -> None:
    made(one, "grows")
    one.ok(f"backup create {backup} --stream grows")
    (piece,) = pieces(backup)
    size = piece.stat().st_size
    assert one.json(f"backup create {backup} --stream grows")["new_bytes"] == 0
    one.ok("publish grows more --count 20 --ack")
    taken = one.json(f"backup create {backup} --stream grows")
    assert taken["new_offsets"] == 20
    assert piece.stat().st_size == size + taken["new_bytes"]
    one.ok(f"backup restore stream {backup} grows --as grown")
    assert rows(one, "grown") == rows(one, "grows")
    assert one.json("stream info grown")["config"]["subjects"] == ["grown"]


def test_offsets_stay_where_a_log_does_not_begin_at_zero(one: Cli, backup: str) -> None:
    made(one, "late")
    one.ok("stream purge late --before 100 --yes")
    before = rows(one, "late")
    assert before[0]["offset"] == 100
    one.ok(f"backup create {backup} --stream late")
    one.ok(f"backup restore stream {backup} late --as later")
    assert rows(one, "later") == before


def test_what_was_purged_after_it_was_backed_up(one: Cli, backup: str) -> None:
    made(one, "purged")
    before = rows(one, "purged")
    one.ok(f"backup create {backup} --stream purged")
    one.ok("stream purge purged --yes")
    one.ok(f"backup create {backup} --stream purged")
    one.ok(f"backup restore stream {backup} purged --as purged-all --whole")
    assert rows(one, "purged-all") == before
    one.ok(f"backup restore stream {backup} purged --as purged-now")
    assert rows(one, "purged-now") == []
    assert one.json("publish purged-now x --ack")["last_offset"] == COUNT


def test_partitions_and_compression(one: Cli, backup: str) -> None:
    one.ok("stream add spread --partitions 3 --compression lz4")
    for number in range(3):
        subject = "spread" if not number else f"spread.{number}"
        one.ok(f"publish {subject} v --count {10 * (number + 1)} --ack")
    one.ok(f"backup create {backup} --stream spread")
    one.ok("stream rm spread --yes")
    one.ok(f"backup restore stream {backup} spread")
    counts = [len(one.ok(f"consume spread --partition {n}").splitlines()) for n in range(3)]
    assert counts == [10, 20, 30]


def test_from_the_folder_of_a_running_node(one: Cli, dev: Any, backup: str) -> None:
    made(one, "lies")
    (folder,) = [path.parent for path in Path(dev.data_dir).rglob("node.json")]

    def all_noted() -> bool:
        done = one.run(f"backup create {backup} --path {folder} --stream lies")
        return not done.code and one.json(f"backup info {backup}")["streams"][0]["records"] == COUNT

    wait_until(all_noted, "the checkpoint")
    one.ok(f"backup restore stream {backup} lies --as lay")
    assert rows(one, "lay") == rows(one, "lies")


# Bad input


def test_a_stream_that_is_there_is_not_touched(one: Cli, backup: str) -> None:
    made(one, "there", count=5)
    one.ok(f"backup create {backup} --stream there")
    said = one.refused(f"backup restore stream {backup} there")
    assert "there is a stream 'there' already" in said
    assert "--as" in said
    assert len(rows(one, "there")) == 5


@pytest.mark.parametrize("how", ["flipped", "cut", "missing"])
def test_a_damaged_file_restores_nothing(one: Cli, backup: str, how: str) -> None:
    made(one, f"bad-{how}", count=50)
    one.ok(f"backup create {backup} --stream bad-{how}")
    (piece,) = pieces(backup)
    data = bytearray(piece.read_bytes())
    if how == "flipped":
        data[200] ^= 1
        piece.write_bytes(data)
    elif how == "cut":
        piece.write_bytes(data[:-1])
    else:
        piece.unlink()
    assert piece.name in one.refused(
        f"backup restore stream {backup} bad-{how} --as bad-copy-{how}"
    )
    assert "bad-copy" not in one.ok("stream ls")
    done = one.run(f"backup verify {backup}")
    assert (done.code, piece.name in done.out) == (1, True)
    one.ok(f"publish bad-{how} more --ack")
    assert piece.name in one.refused(f"backup create {backup} --stream bad-{how}")
    one.ok(f"backup create {backup} --stream bad-{how} --full")
    assert "0 wrong" in one.ok(f"backup verify {backup}")


def test_what_is_no_backup(one: Cli, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("precious")
    said = one.refused(f"backup create {tmp_path}/other")
    assert "it is no backup" in said
    assert (tmp_path / "other" / "file").read_text() == "precious"
    assert "has no backup.json" in one.refused(f"backup info {tmp_path}/absent")
    assert "has no backup.json" in one.refused(f"backup restore stream {tmp_path}/other x")


def test_nobody_writes_like_a_restore_into_a_stream_of_others(one: Cli) -> None:
    made(one, "open", count=3)
    result = asyncio.run(smuggled(one.servers, "open", make_batch(3, [b"smuggled"])))
    assert result["error_code"] == ErrorCode.invalid_request
    assert "is not read-only" in result["error_message"]
    assert len(rows(one, "open")) == 3


async def smuggled(servers: str, stream: str, batch: bytes) -> dict[str, Any]:
    """What the leader answers."""
    async with Cluster.at(servers) as nodes:
        leader, _ = await nodes.leader(TopicPartition(stream, 0))
        data = {
            "topic_id": (await nodes.topic(stream)).topic_id,
            "partition_data": [{"index": 0, "records": batch}],
        }
        request = {
            "transactional_id": None,
            "acks": ACKS_AS_STORED,
            "timeout": 5_000,
            "topic_data": [data],
        }
        answer = await nodes.ask(leader, registry.PRODUCE, request)
    (result,) = answer["responses"][0]["partition_responses"]
    return dict(result)


def test_unknown_streams_and_the_nodes_own(one: Cli, backup: str) -> None:
    made(one, "known", count=1)
    assert "no stream 'absent'" in one.refused(f"backup create {backup} --stream absent")
    one.ok(f"backup create {backup} --stream known")
    assert "it has known" in one.refused(f"backup restore stream {backup} absent")
    said = one.refused(f"backup restore cluster {backup} --node 1={backup}-node")
    assert "never finished" in said
    assert not Path(f"{backup}-node").exists()


def test_another_clusters_backup(one: Cli, backup: str) -> None:
    made(one, "ours", count=1)
    one.ok(f"backup create {backup} --stream ours")
    path = Path(backup, "backup.json")
    manifest = decode_manifest(path.read_bytes(), "")
    path.write_bytes(encode_manifest(manifest.model_copy(update={"cluster_id": "theirs"})))
    assert "is a backup of cluster theirs" in one.refused(f"backup create {backup}")


def test_a_full_disk_leaves_what_was_there(one: Cli, tmp_path: Path) -> None:
    made(one, "too-much", count=20)
    with mounted(tmp_path / "disk", 2 << 20) as disk:
        one.ok(f"backup create {disk}/b --stream too-much")
        one.ok("publish too-much", "x" * 50_000, "--count", "80", "--ack")
        assert "No space left" in one.refused(f"backup create {disk}/b --stream too-much")
        assert "0 wrong" in one.ok(f"backup verify {disk}/b")
        assert one.json(f"backup info {disk}/b")["streams"][0]["records"] == 20


# Killed


def killed_when_grown(command: list[str], folder: Path, growth: float) -> bool:
    """Killed when the folder has so many bytes more; whether it was still at work then."""
    enough = bytes_in(folder) + growth
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and bytes_in(folder) < enough:
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    return process.wait() == -signal.SIGKILL


def bytes_in(folder: Path) -> int:
    """Files may go meanwhile."""
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_size
    return total


def test_a_killed_backup_and_a_killed_restore_go_on(one: Cli, dev: Dev, backup: str) -> None:
    made(one, "taken", count=10)
    one.ok(f"backup create {backup} --stream taken")
    one.ok("publish taken", "x" * 20_000, "--count", "2000", "--ack")
    take = [program("streamlog"), "backup", "create", backup, "--stream", "taken"]
    asking = ["--bootstrap-server", one.servers]
    one.ok(f"backup create {backup}-other --stream taken")
    whole = bytes_in(Path(f"{backup}-other"))
    was_killed = [
        killed_when_grown([*take, *asking], Path(backup), whole * part) for part in (0.05, 0.2, 0.3)
    ]
    assert any(was_killed)
    assert "0 wrong" in one.ok(f"backup verify {backup}")
    one.ok(f"backup create {backup} --stream taken")
    restore = [
        program("streamlog"),
        "backup",
        "restore",
        "stream",
        backup,
        "taken",
        "--as",
        "risen",
    ]
    for part in (0.1, 0.2, 0.3):
        killed_when_grown([*restore, *asking], Path(dev.data_dir), whole * part)
    done = one.run(f"backup restore stream {backup} taken --as risen")
    assert done.code == 0 or "already" in done.err  # the last one was quicker than its end
    assert rows(one, "risen") == rows(one, "taken")


# A whole cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[processes.Cluster]:
    with processes.Cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        cluster.command("stream", "add", "orders", "--replicas", "3")
        cluster.command_without_servers("publish", "orders", "v", "--count", "200", "--ack")
        yield cluster


def consumed(servers: str, group: str, count: int) -> list[int]:
    """Offsets that a group's only member gets; it commits the last one."""
    from confluent_kafka import Consumer

    settings = {
        "bootstrap.servers": servers,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    consumer = Consumer(settings)
    consumer.subscribe(["orders"])
    offsets: list[int] = []
    try:
        deadline = time.monotonic() + 60
        while len(offsets) < count and time.monotonic() < deadline:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                offsets.append(int(message.offset() or 0))
                last = message
        consumer.commit(message=last, asynchronous=False)
    finally:
        consumer.close()
    return offsets


def test_a_cluster_comes_back_from_folders_alone(
    cluster: processes.Cluster, tmp_path: Path
) -> None:
    """The nodes' folders are lost, all of them, and made anew: with the groups' offsets."""
    assert consumed(cluster.servers, "readers", 120) == list(range(120))
    before = cluster.command("consume", "orders", "--json").splitlines()
    backup = tmp_path / "backup"
    cluster.command("backup", "create", str(backup))
    cluster.kill()
    streamlog = program("streamlog")
    for number, node in cluster.nodes.items():
        shutil.rmtree(node.data_dir)
        command = [streamlog, "backup", "restore", "cluster", str(backup), "--nodes", "1,2,3"]
        subprocess.run([*command, "--node", f"{number}={node.data_dir}"], check=True)
    again = subprocess.run(
        [
            streamlog,
            "backup",
            "restore",
            "cluster",
            str(backup),
            "--node",
            f"1={cluster[1].data_dir}",
        ],
        check=False,
        capture_output=True,
        text=True,
    )
    assert (again.returncode, "is a node's folder already" in again.stderr) == (1, True)
    cluster.start()
    assert cluster.command("consume", "orders", "--json").splitlines() == before
    assert consumed(cluster.servers, "readers", 10) == list(range(120, 130))
    cluster.command("cluster", "check", "--wait", "--timeout", "30")
    for node in cluster.nodes.values():
        verified = subprocess.run([streamlog, "log", "verify", str(node.data_dir)], check=False)
        assert verified.returncode == 0


def test_a_killed_restore_begins_anew_and_one_node_can_do_for_three(
    cluster: processes.Cluster, tmp_path: Path
) -> None:
    backup, target = tmp_path / "backup", tmp_path / "node"
    cluster.command("backup", "create", str(backup))
    target.mkdir()
    (target / "restoring").write_text("of a run that was killed\n")
    (target / "streams" / "orders" / "0").mkdir(parents=True)
    (target / "streams" / "orders" / "0" / "00000000000000000000.log").write_bytes(b"half")
    command = [
        program("streamlog"),
        "backup",
        "restore",
        "cluster",
        str(backup),
        "--node",
        f"9={target}",
    ]
    subprocess.run([*command, "--cluster-id", "copy"], check=True)
    assert json.loads((target / "node.json").read_text())["cluster_id"] == "copy"
    verified = subprocess.run([program("streamlog"), "log", "verify", str(target)], check=False)
    assert verified.returncode == 0
    assert not (target / "restoring").exists()
    alone = NodeProcess(9, tmp_path / "alone", data_dir=target)
    alone.configure({"nats": {"servers": [cluster.nats.url]}, "cluster": {"id": "copy"}})
    try:
        alone.spawn()
        alone.wait_ready()
        asked = [program("streamlog"), "consume", "orders", "--bootstrap-server", alone.kafka]
        read = subprocess.run(asked, check=True, capture_output=True, text=True)
        assert len(read.stdout.splitlines()) == 200
    finally:
        alone.kill()
