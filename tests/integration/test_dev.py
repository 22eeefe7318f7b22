"""``streamlog dev``: one command, everything runs; one signal, nothing is left."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nats
import psutil
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from nats.js.api import StreamConfig

from tools.nodes.dev import Dev
from tools.nodes.server_process import program

TIMEOUT_S = 30.0


def eventually(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def children(pid: int) -> list[psutil.Process]:
    children: list[Any] = psutil.Process(pid).children(recursive=True)
    return children


def is_gone(process: psutil.Process) -> bool:
    """Ended; as an orphan it may wait for whoever collects orphans here."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def get(dev: Any, path: str) -> tuple[int, str]:
    """Status and body; status 0 where nobody listens."""
    try:
        with urllib.request.urlopen(f"{dev.http}{path}") as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except OSError:
        return 0, ""


def is_ready(dev: Any) -> bool:
    return get(dev, "/readyz")[0] == 200


async def publish(url: str, stream: str, count: int) -> list[int]:
    """Create the stream if it is not there; the sequences of the acks."""
    client = await nats.connect(url)
    try:
        context = client.jetstream(domain="streamlog")
        await context.add_stream(StreamConfig(name=stream, subjects=[f"{stream}.>"]))
        acks = [await context.publish(f"{stream}.a", b"%d" % i) for i in range(count)]
        return [ack.seq for ack in acks]
    finally:
        await client.close()


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[[Path], subprocess.Popen[bytes]]]:
    """``streamlog serve --config`` by hand."""
    started: list[subprocess.Popen[bytes]] = []

    def start(config: Path) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "streamlog", "serve", "--config", str(config)]
        with (tmp_path / "serve.log").open("ab") as output:
            started.append(subprocess.Popen(command, stdout=output, stderr=output))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


async def test_it_tells_where_everything_is(dev: Any) -> None:
    addresses = dev.addresses
    assert list(addresses) == ["ready", "nats", "nodes"]
    assert addresses["ready"] is True
    assert addresses["nats"].startswith("nats://127.0.0.1:")
    (node,) = addresses["nodes"]
    assert list(node) == ["id", "pid", "nats", "kafka", "http", "config"]
    assert node["id"] == 1
    assert node["config"] == str(dev.data_dir / "node-1" / "node.toml")
    assert {child.pid for child in children(dev.pid)} >= {node["pid"]}
    assert get(dev, "/readyz") == (200, '{"ready": true, "reasons": {}, "codes": {}}')
    for address in (addresses["nats"], node["nats"], node["kafka"], node["http"]):
        assert address in dev.log_text()


async def test_nats_in_kafka_out(dev: Any, read_all: Callable[..., list[Any]]) -> None:
    assert await publish(dev.nats, "through", 100) == list(range(1, 101))
    records = read_all(dev.kafka, "through")
    assert [(record.offset, record.value) for record in records] == [
        (i, b"%d" % i) for i in range(100)
    ]
    assert dict(records[0].headers)["subject"] == b"through.a"


@pytest.mark.parametrize("event_loop", ["auto", "asyncio"])
async def test_without_a_nats_server_clients_connect_to_the_node(
    new_dev: Callable[..., Any],
    read_all: Callable[..., list[Any]],
    monkeypatch: pytest.MonkeyPatch,
    event_loop: str,
) -> None:
    monkeypatch.setenv("STREAMLOG_NODE__EVENT_LOOP", event_loop)
    dev = new_dev(nats_server=False)
    dev.start()
    assert dev.nats == dev.addresses["nodes"][0]["nats"]
    assert all(child.name() != "nats-server" for child in children(dev.pid))
    assert await publish(dev.nats, "alone", 50) == list(range(1, 51))
    assert len(read_all(dev.kafka, "alone")) == 50
    assert dev.stop() == 0


@pytest.mark.parametrize("event_loop", ["auto", "asyncio"])
async def test_on_either_event_loop(
    new_dev: Callable[..., Any],
    read_all: Callable[..., list[Any]],
    monkeypatch: pytest.MonkeyPatch,
    event_loop: str,
) -> None:
    monkeypatch.setenv("STREAMLOG_NODE__EVENT_LOOP", event_loop)
    dev = new_dev()
    dev.start()
    log = (dev.data_dir / "node-1" / "node.log").read_text()
    assert ("event_loop=asyncio" in log) == (event_loop == "asyncio")
    await publish(dev.nats, "looped", 50)
    assert len(read_all(dev.kafka, "looped")) == 50
    assert dev.stop() == 0


async def test_metrics_have_the_stream(dev: Any) -> None:
    await publish(dev.nats, "measured", 3)
    _, text = get(dev, "/metrics/partitions?stream=measured&stream=missing")
    for name in ("log_end_offset", "high_watermark"):
        assert f'streamlog_partition_{name}{{partition="0",stream="measured"}} 3.0' in text
    assert text.count("streamlog_partition_high_watermark{") == 1
    _, text = get(dev, "/metrics")
    assert "streamlog_nats_connected 1.0" in text
    assert "streamlog_partition_" not in text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_one_signal_stops_all(new_dev: Callable[..., Any], number: signal.Signals) -> None:
    dev = new_dev()
    dev.start()
    await publish(dev.nats, "kept", 5)
    family, kafka = children(dev.pid), dev.kafka
    assert {process.name() for process in family} >= {"nats-server"}
    os.killpg(dev.pid, number)  # as a terminal does
    eventually(lambda: not dev.is_running(), "it does not stop")
    assert dev.stop() == 0
    assert all(is_gone(process) for process in family)
    assert not dev.ready_file.exists()
    with socket.socket() as probe:
        host, port = kafka.split(":")
        assert probe.connect_ex((host, int(port))) != 0
    assert "Traceback" not in dev.log_text()


@pytest.mark.parametrize(("outside", "inside"), [({}, "400"), ({"GOGC": "150"}, "150")])
def test_its_nats_server_is_set_up_for_acks(
    new_dev: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    outside: dict[str, str],
    inside: str,
) -> None:
    for name, value in outside.items():
        monkeypatch.setenv(name, value)
    dev = new_dev()
    dev.start()
    (server,) = (child for child in children(dev.pid) if child.name() == "nats-server")
    assert server.environ()["GOGC"] == inside
    config = Path(server.cmdline()[-1]).read_text()
    assert "disable_sublist_cache: true" in config


async def test_what_was_kept_is_there_at_the_next_start(
    new_dev: Callable[..., Any], read_all: Callable[..., list[Any]]
) -> None:
    dev = new_dev()
    dev.start()
    assert await publish(dev.nats, "kept", 5) == [1, 2, 3, 4, 5]
    assert dev.stop() == 0
    dev.start()
    assert await publish(dev.nats, "kept", 2) == [6, 7]
    assert len(read_all(dev.kafka, "kept")) == 7


async def test_children_die_with_a_killed_parent(new_dev: Callable[..., Any]) -> None:
    dev = new_dev()
    dev.start()
    family = children(dev.pid)
    assert len(family) == 2
    dev.kill()
    eventually(lambda: all(is_gone(process) for process in family), "a child outlives its parent")
    stale = dev.ready_file.read_text()
    dev.spawn()  # neither the stale dev.json nor a lock is in the way
    eventually(
        lambda: dev.ready_file.exists() and dev.ready_file.read_text() != stale, "it does not start"
    )
    assert dev.node_pid in {process.pid for process in children(dev.pid)}


async def test_a_killed_node_is_reported_and_starts_again_by_hand(
    new_dev: Callable[..., Any],
    read_all: Callable[..., list[Any]],
    serve: Callable[[Path], subprocess.Popen[bytes]],
) -> None:
    dev = new_dev()
    dev.start()
    acked = await publish(dev.nats, "crash", 50)
    config = Path(dev.addresses["nodes"][0]["config"])
    os.kill(dev.node_pid, signal.SIGKILL)
    eventually(lambda: "killed by SIGKILL" in dev.log_text(), "the death is not reported")
    assert f"streamlog serve --config {config}" in dev.log_text()
    assert dev.is_running()

    serve(config)
    eventually(lambda: is_ready(dev), "the node does not come back")
    assert [record.offset + 1 for record in read_all(dev.kafka, "crash")] == acked
    assert await publish(dev.nats, "crash", 1) == [51]


async def test_it_waits_for_a_nats_server_that_is_not_there_yet(
    new_dev: Callable[..., Any], nats_server: Any
) -> None:
    nats_server.stop()
    dev = new_dev("--nats", nats_server.url)
    dev.spawn()
    eventually(lambda: "waiting for node-1" in dev.log_text(), "it does not say what it waits for")
    assert not dev.ready_file.exists()
    nats_server.start()
    dev.wait_ready()
    assert dev.nats == nats_server.url
    assert len(children(dev.pid)) == 1


async def test_a_stop_while_it_waits(new_dev: Callable[..., Any]) -> None:
    dev = new_dev("--nats", "nats://127.0.0.1:1")
    dev.spawn()
    eventually(lambda: "waiting for node-1" in dev.log_text(), "it does not wait")
    family = children(dev.pid)
    assert dev.stop() == 0
    assert all(is_gone(process) for process in family)


async def test_nats_may_go_and_come_back(
    new_dev: Callable[..., Any], nats_server: Any, read_all: Callable[..., list[Any]]
) -> None:
    dev = new_dev("--nats", nats_server.url)
    dev.start()
    await publish(dev.nats, "gap", 5)
    nats_server.stop()
    eventually(lambda: not is_ready(dev), "it says that it is ready without NATS")
    status, text = get(dev, "/readyz")
    assert status == 503
    assert "reads go on" in json.loads(text)["reasons"]["nats"]
    assert len(read_all(dev.kafka, "gap")) == 5
    nats_server.start()
    eventually(lambda: is_ready(dev), "it does not come back")
    assert await publish(dev.nats, "gap", 1) == [6]


def test_commands_ask_all_nodes_of_what_runs(tmp_path: Path) -> None:
    """Node 1 is gone, which would be the default. A topic with default replicas has lost nothing."""
    dev = Dev(tmp_path, "--nodes", "3")
    dev.start()
    try:
        servers = ",".join(node["kafka"] for node in dev.addresses["nodes"])
        admin = AdminClient({"bootstrap.servers": servers})
        topic = NewTopic(
            "app-changelog", -1, -1, config={"cleanup.policy": "compact"}
        )  # as Kafka Streams does
        admin.create_topics([topic])["app-changelog"].result(TIMEOUT_S)
        os.kill(dev.node_pid, signal.SIGKILL)
        producer = Producer({"bootstrap.servers": servers, "acks": "all"})
        failed: list[object] = []
        producer.produce(
            "app-changelog", b"x", b"k", on_delivery=lambda error, _: failed.append(error)
        )
        assert producer.flush(TIMEOUT_S) == 0
        assert failed == [None]
        words = [program("streamlog"), "cluster", "info"]
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0 and "NODE" in done.stdout, done.stderr
        env = {**os.environ, "NATS_URL": dev.nats}
        for text in (  # as docs/index.md and docs/groups.md have it
            "stream add orders --subject orders.>",
            "stream edit orders --partitions 6 --partition-by key",
        ):
            asked = [program("streamlog"), *text.split()]
            made = subprocess.run(asked, capture_output=True, check=False, timeout=60, env=env)
            assert made.returncode == 0, made.stderr
    finally:
        dev.stop(60)
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert "127.0.0.1:9092" in done.stderr
