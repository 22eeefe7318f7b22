"""The ``nats`` command line manages streams here as it does with JetStream, three nodes at hand."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.peers.nats_cli import nats_program
from tests.peers.sources import NoSourcesError
from tools.nodes.cluster import Cluster, NoNats
from tools.nodes.server_process import wait_until

pytestmark = [pytest.mark.peers, pytest.mark.slow]

Nats = Callable[..., str]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a node that is alone, as `streamlog dev` starts it."""
    settings: dict[str, dict[str, Any]] = {
        "nats": {"default_api_prefix": True},
        "nats_listen": {},
    }
    folder = tmp_path_factory.mktemp("lone")
    with Cluster(folder, nodes=1, settings=settings, nats=NoNats()) as started:
        yield started[1].port_url


@pytest.fixture
def nats(cluster: Cluster, tmp_path: Path) -> Nats:
    """Runs a command, which must end as expected; what it said."""
    return runner(tmp_path, "-s", cluster.nats.url, "--js-domain", "streamlog")


@pytest.fixture
def ported(port: str, tmp_path: Path) -> Nats:
    """The same, at the node's own port."""
    return runner(tmp_path, "-s", port)


@pytest.fixture
def beside(port: str, tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a command that goes on, at the node's own port, and ends it."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        command = [str(program_or_skip()), "-s", port, *arguments]
        process = subprocess.Popen(
            command,
            env=environment(tmp_path),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def program_or_skip() -> Path:
    try:
        return nats_program()
    except NoSourcesError as error:
        pytest.skip(f"the nats command line cannot be had: {error}")


def environment(home: Path) -> dict[str, str]:
    return {**os.environ, "HOME": str(home), "XDG_CONFIG_HOME": str(home)}


def runner(home: Path, *options: str) -> Nats:
    program = program_or_skip()

    def run(*arguments: str, code: int = 0) -> str:
        command = [str(program), *options, *arguments]
        done = subprocess.run(
            command,
            env=environment(home),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        said = str(done.stdout + done.stderr)
        assert done.returncode == code, f"nats {' '.join(arguments)}:\n{said}"
        assert "failed schema validation" not in said
        return said

    return run


def info(nats: Nats, stream: str) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(nats("stream", "info", stream, "--json"))
    return told


def add(nats: Nats, name: str, *options: str) -> None:
    nats("stream", "add", name, "--subjects", f"{name}.*", "--defaults", *options)


def test_a_streams_life(nats: Nats) -> None:
    add(nats, "orders", "--replicas", "3", "--max-age", "1h", "--allow-direct")
    for i in range(3):
        nats("pub", f"orders.{i}", f"hello {i}")
    assert "orders" in nats("stream", "ls") and nats("stream", "ls", "-n").split() == ["orders"]
    assert "orders" in nats("stream", "find", "--subject", "orders.*")
    assert "orders" not in nats("stream", "find", "--empty")
    assert "orders" in nats("stream", "report")
    assert "hello 1" in nats("stream", "get", "orders", "2")
    assert "hello 2" in nats("stream", "get", "orders", "-S", "orders.2")
    nats("stream", "edit", "orders", "--description", "all of them", "-f")
    told = info(nats, "orders")
    assert told["config"]["description"] == "all of them"
    assert (told["state"]["messages"], told["state"]["last_seq"]) == (3, 3)
    assert "Purged 1" in nats("stream", "purge", "orders", "--keep", "2", "-f")
    nats("stream", "seal", "orders", "-f")
    assert info(nats, "orders")["config"]["sealed"]
    assert "sealed" in nats("stream", "purge", "orders", "-f", code=1)
    nats("stream", "rm", "orders", "-f")
    assert "not found" in nats("stream", "rm", "orders", "-f", code=1)


def test_leaders_and_replicas(nats: Nats) -> None:
    add(nats, "moved", "--replicas", "2")
    before = info(nats, "moved")["cluster"]
    nats("stream", "cluster", "step-down", "moved")
    after = info(nats, "moved")["cluster"]
    assert after["leader"] == before["replicas"][0]["name"]
    nats("stream", "cluster", "peer-remove", "moved", before["leader"], "-f")
    everybody = {"node-1", "node-2", "node-3"}
    (newcomer,) = everybody - {before["leader"], after["leader"]}
    peers = {it["name"] for it in info(nats, "moved")["cluster"]["replicas"]}
    assert newcomer in peers or before["leader"] in peers, "the move may be under way"
    nats("stream", "rm", "moved", "-f")


def test_its_benchmark_publishes(nats: Nats) -> None:
    add(nats, "bench")
    for mode, count in (("sync", "50"), ("async", "5000")):
        options = ("--stream", "bench", "--msgs", count, "--no-progress")
        assert "msgs/sec" in nats("bench", "js", "pub", mode, "bench.a", *options)
    assert info(nats, "bench")["state"]["messages"] == 5_050
    assert "storage" in nats("account", "info").lower()
    nats("stream", "rm", "bench", "-f")


def test_the_port_is_checked_and_pinged(ported: Nats) -> None:
    assert ported("server", "check", "connection").startswith("OK Connection")
    assert "µs" in (told := ported("rtt")) or "ms" in told


def test_a_subscriber_and_a_responder_at_the_port(
    ported: Nats, beside: Callable[..., subprocess.Popen[str]]
) -> None:
    subscriber = beside("sub", "there.>", "--count", "2", "--raw")
    beside("reply", "help.me", "at your service")
    wait_until(lambda: "at your service" in ask(ported), "the responder")
    ported("pub", "there.a", "hello", "-H", "colour:red")
    ported("pub", "there.b.c", "again")
    said, _ = subscriber.communicate(timeout=30)
    assert [line for line in said.split() if line in ("hello", "again")] == ["hello", "again"]


def ask(ported: Nats) -> str:
    try:
        return ported("request", "help.me", "please", "--timeout", "1s")
    except AssertionError:
        return ""  # nobody yet


def test_benchmarks_at_the_port(ported: Nats, beside: Callable[..., subprocess.Popen[str]]) -> None:
    count = ("--msgs", "20000", "--size", "100", "--no-progress")
    assert "publisher stats" in ported("bench", "pub", "bench.pub", *count)
    subscriber = beside("bench", "sub", "bench.sub", *count)
    assert subscriber.stdout is not None
    assert any("expecting" in line for line in iter(subscriber.stdout.readline, ""))
    while subscriber.poll() is None:  # the first ones may come before it has subscribed
        ported("bench", "pub", "bench.sub", *count)
    assert "subscriber stats" in subscriber.stdout.read()
    beside("bench", "service", "serve", "bench.svc", "--no-progress")
    few = ("--msgs", "200", "--no-progress")
    wait_until(lambda: answered(ported, "bench.svc"), "the service")
    assert "requester stats" in ported("bench", "service", "request", "bench.svc", *few)
    ported("bench", "js", "pub", "async", "bench.js", "--stream", "bench", "--create", *count)
    ported("bench", "js", "pub", "sync", "bench.js", "--stream", "bench", *few)
    assert info(ported, "bench")["state"]["messages"] == 20_200


def answered(ported: Nats, subject: str) -> bool:
    try:
        ported("request", subject, "x", "--timeout", "1s")
    except AssertionError:
        return False
    return True


def test_streams_and_buckets_at_the_port(ported: Nats) -> None:
    add(ported, "own")
    ported("pub", "own.a", "hello", "--jetstream")
    assert "own" in ported("stream", "ls", "-n").split()
    assert info(ported, "own")["state"]["messages"] == 1
    ported("stream", "rm", "own", "-f")
    ported("kv", "add", "bucket")
    ported("kv", "put", "bucket", "colour", "red")
    assert ported("kv", "get", "bucket", "colour", "--raw").strip() == "red"
    ported("kv", "del", "bucket", "-f")


@pytest.fixture
def of_domain(port: str, tmp_path: Path) -> Nats:
    """At the node's own port, under streamlog's domain."""
    return runner(tmp_path, "-s", port, "--js-domain", "streamlog")


def test_a_consumers_life(of_domain: Nats) -> None:
    nats = of_domain
    add(nats, "work")
    for i in range(3):
        nats("pub", f"work.{i}", f"hello {i}")
    nats("consumer", "add", "work", "worker", "--pull", "--defaults")
    assert nats("consumer", "ls", "work", "-n").split() == ["worker"]
    assert "worker" in nats("consumer", "find", "work")
    told = json.loads(nats("consumer", "info", "work", "worker", "--json"))
    assert (told["num_pending"], told["config"]["ack_policy"]) == (3, "explicit")
    assert "hello 0" in nats("consumer", "next", "work", "worker", "--ack")
    assert "hello 1" in nats("consumer", "next", "work", "worker", "--no-ack")
    told = json.loads(nats("consumer", "info", "work", "worker", "--json"))
    assert (told["num_ack_pending"], told["num_pending"]) == (1, 1)
    assert told["ack_floor"] | {"last_active": ""} == {
        "consumer_seq": 1,
        "stream_seq": 1,
        "last_active": "",
    }
    assert "Paused" in nats("consumer", "pause", "work", "worker", "1h", "-f")
    assert "resumed" in nats("consumer", "resume", "work", "worker", "-f")
    nats("consumer", "edit", "work", "worker", "--description", "of all", "-f")
    nats("consumer", "copy", "work", "worker", "other")
    assert "worker" in nats("consumer", "report", "work")
    assert info(nats, "work")["state"]["consumer_count"] == 2
    assert "No deleted messages" in nats("stream", "gaps", "work", "-f")
    nats("consumer", "rm", "work", "worker", "-f")
    assert nats("consumer", "ls", "work", "-n").split() == ["other"]
    nats("stream", "rm", "work", "-f")


def test_a_bucket_is_listed_and_its_history_told(ported: Nats) -> None:
    ported("kv", "add", "colours", "--history", "5")
    assert "No keys" in ported("kv", "ls", "colours")
    for colour in ("red", "blue"):
        ported("kv", "put", "colours", "car", colour)
    ported("kv", "put", "colours", "house", "white")
    assert sorted(ported("kv", "ls", "colours").split()) == ["car", "house"]
    history = ported("kv", "history", "colours", "car")
    assert "red" in history and "blue" in history
    assert "colours" in ported("kv", "ls")
    ported("kv", "del", "colours", "-f")


def test_bucket_is_written_with_and_without_the_domain(
    port: str, ported: Nats, tmp_path: Path
) -> None:
    domain = runner(tmp_path, "-s", port, "--js-domain", "streamlog")
    domain("kv", "add", "both", "--history", "5")
    domain("kv", "put", "both", "colour", "red")
    domain("kv", "create", "both", "shape", "round")
    ported("kv", "put", "both", "colour", "blue")
    assert domain("kv", "get", "both", "colour", "--raw").strip() == "blue"
    domain("kv", "update", "both", "colour", "green", "3")
    domain("kv", "update", "both", "colour", "late", "3", code=1)
    domain("kv", "del", "both", "shape", "-f")
    assert ported("kv", "ls", "both").split() == ["colour"]
    domain("kv", "del", "both", "-f")


def test_a_bucket_is_watched(ported: Nats, beside: Callable[..., subprocess.Popen[str]]) -> None:
    ported("kv", "add", "watched")
    ported("kv", "put", "watched", "first", "before")
    watch = beside("kv", "watch", "watched")
    assert watch.stdout is not None
    assert "first: before" in watch.stdout.readline()
    ported("kv", "put", "watched", "second", "after")
    assert "second: after" in watch.stdout.readline()
    ported("kv", "del", "watched", "-f")


def test_objects(of_domain: Nats, tmp_path: Path) -> None:
    sent, got = tmp_path / "sent", tmp_path / "got"
    sent.write_bytes(os.urandom(300_000))
    quiet = ("-f", "--no-progress")
    of_domain("object", "add", "things")
    of_domain("object", "put", "things", str(sent), "--name", "thing", *quiet)
    assert "thing" in of_domain("object", "ls", "things")
    of_domain("object", "get", "things", "thing", "--output", str(got), *quiet)
    assert got.read_bytes() == sent.read_bytes()
    of_domain("object", "rm", "things", "thing", "-f")
    of_domain("object", "rm", "things", "-f")


def test_benchmarks_of_consumers(of_domain: Nats) -> None:
    nats = of_domain
    add(nats, "read")
    count = ("--stream", "read", "--msgs", "5000", "--no-progress")
    nats("bench", "js", "pub", "async", "read.a", *count)
    assert "stats" in nats("bench", "js", "ordered", *count)
    for mode in ("consume", "fetch"):
        nats("consumer", "add", "read", mode, "--pull", "--defaults")
        assert "stats" in nats("bench", "js", mode, "--consumer", mode, *count)
        told = json.loads(nats("consumer", "info", "read", mode, "--json"))
        assert told["delivered"]["stream_seq"] == 5_000
    nats("stream", "rm", "read", "-f")


def test_a_stream_is_backed_up_and_restored(ported: Nats, of_domain: Nats, tmp_path: Path) -> None:
    for place, nats in enumerate((ported, of_domain)):
        name = f"kept{place}"
        add(nats, name)
        count = ("--msgs", "5000", "--size", "300", "--no-progress")
        nats("bench", "js", "pub", "async", f"{name}.a", "--stream", name, *count)
        nats("consumer", "add", name, "worker", "--pull", "--defaults")
        assert "Acknowledged" in nats("consumer", "next", name, "worker", "--ack")
        before, folder = info(nats, name), str(tmp_path / name)
        options = ("--consumers", "--check", "--window-size", "1MB", "--no-progress")
        nats("stream", "backup", name, folder, *options)
        assert "already exist" in nats("stream", "restore", folder, "--no-progress", code=1)
        nats("stream", "rm", name, "-f")
        nats("stream", "restore", folder, "--no-progress")
        after = info(nats, name)
        assert after["config"] == before["config"]
        for key in ("messages", "first_seq", "last_seq", "first_ts", "last_ts"):
            assert after["state"][key] == before["state"][key]
        told = json.loads(nats("consumer", "info", name, "worker", "--json"))
        assert (told["ack_floor"]["stream_seq"], told["num_pending"]) == (1, 4_999)
        nats("stream", "rm", name, "-f")


def test_what_nats_asks_of_a_system_account_is_not_answered(ported: Nats) -> None:
    assert "503" in ported("server", "ping", code=1)
    assert "no results" in ported("server", "list", code=1)
