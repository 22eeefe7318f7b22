"""``streamlog bench`` against a running node: what it says is true; no figure is judged."""

import os
import signal
import subprocess
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.cli_program import TIMEOUT_S, Cli

AWAY_S = 0.6


@pytest.fixture(scope="module")
def cli(dev: Any) -> Cli:
    return Cli(dev)


@pytest.fixture(scope="module")
def small(cli: Cli) -> Cli:
    cli.ok("stream", "add", "small", "--max-msg-size", "1000")
    return cli


def stored(cli: Cli, stream: str) -> int:
    return int(cli.json("stream", "info", stream)["messages"])


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("plain", ()),
        ("many-connections", ("--connections", "3")),
        ("one-by-one", ("--in-flight", "1", "--count", "20")),
        ("empty", ("--size", "0")),
        ("large", ("--size", "300000", "--count", "20")),
        ("single", ("--count", "1")),
        ("few-for-many", ("--count", "2", "--connections", "9")),
        ("without-acks", ("--no-acks",)),
    ],
)
def test_every_message_is_stored_and_counted(
    cli: Cli, name: str, arguments: tuple[str, ...]
) -> None:
    cli.ok("stream", "add", name)
    figures = cli.json("bench", "publish", name, "--count", "5001", *arguments)
    count = figures["messages"]
    assert figures["stored"] == count
    assert figures["acks"] == (1 if name == "without-acks" else count)
    assert figures["stream"] == name
    assert figures["records_per_s"] == pytest.approx(count / figures["seconds"])
    assert stored(cli, name) == count + 1  # one before the clock
    read = cli.json("bench", "consume", name)
    assert read["records"] == count + 1
    assert read["size_bytes"] > count * figures["size_bytes"]


def test_it_says_where_it_writes_and_how_to_remove_it(cli: Cli) -> None:
    cli.ok("stream", "add", "said")
    done = cli.run("bench", "publish", "said", "--count", "10")
    assert done.stderr == b"writing into stream said\n"
    out = done.stdout.decode()
    assert "10 messages of 100 bytes" in out
    assert "offsets 0 to 10; `streamlog stream purge said`" in out
    cli.ok("stream", "purge", "said", "--yes")
    assert stored(cli, "said") == 0


def test_latency_is_of_every_message(cli: Cli) -> None:
    cli.ok("stream", "add", "timed")
    figures = cli.json("bench", "latency", "timed", "--rate", "2000", "--seconds", "0.5")
    assert figures["messages"] == 1000
    assert stored(cli, "timed") == 1001
    shown = [figures[f"{name}_ms"] for name in ("p50", "p90", "p99", "p99.9", "max")]
    assert shown == sorted(shown)
    assert shown[0] > 0
    done = cli.run("bench", "latency", "timed", "--seconds", "0.1")
    assert done.returncode == 0
    assert "p99.9" in done.stdout.decode()


def test_partitions_are_read_at_once_or_one_of_them(cli: Cli) -> None:
    cli.ok("stream", "add", "parts", "--partitions", "2", "--subject", "parts")
    cli.ok("bench", "publish", "parts", "--count", "300", "--json")
    cli.ok("bench", "publish", "parts.1", "--count", "700", "--json")
    assert cli.json("bench", "consume", "parts")["records"] == 1002
    assert cli.json("bench", "consume", "parts", "--partition", "1")["records"] == 701
    assert cli.json("bench", "consume", "parts", "--count", "1")["records"] < 1002
    assert "301 records of parts" in cli.ok("bench", "consume", "parts", "--partition", "0")


def test_a_pause_of_the_node_is_a_gap_and_nothing_is_lost(new_dev: Callable[..., Any]) -> None:
    dev = new_dev()
    dev.start()
    cli = Cli(dev)
    cli.ok("stream", "add", "drill")
    command = cli.command("bench", "failover", "drill", "--seconds", "600")
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=cli.environment, text=True
    ) as drill:
        assert drill.stdout is not None
        assert drill.stderr is not None
        assert drill.stderr.readline() == "writing into stream drill\n"
        os.kill(dev.node_pid, signal.SIGSTOP)
        threading.Timer(AWAY_S, os.kill, (dev.node_pid, signal.SIGCONT)).start()
        told = drill.stdout.readline()
        assert "nothing acknowledged for" in told
        drill.send_signal(signal.SIGINT)
        out, err = drill.communicate(timeout=TIMEOUT_S)
        assert (drill.returncode, err) == (0, "")
    # A busy machine may make further gaps.
    first, *rest = [it for it in out.splitlines() if "nothing acknowledged for" not in it]
    figures = {line[:26].strip(): line[26:].strip() for line in rest}
    assert figures["lost after an ack"] == figures["stored twice"] == "0"
    assert figures["without an ack"] == "0"
    published = int(first.split()[0].replace(",", ""))
    assert int(figures["acknowledged"].replace(",", "")) == published
    assert stored(cli, "drill") == published + 1


@pytest.mark.parametrize(
    ("arguments", "said", "code"),
    [
        (("publish", "nobody.listens"), "no stream listens", 1),
        (("latency", "nobody.listens"), "no stream listens", 1),
        (("failover", "nobody.listens"), "no stream listens", 1),
        (("publish", "a b"), "'a b' cannot be published to", 2),
        (("latency", "a.>"), "'a.>' cannot be published to", 2),
        (("failover", "a..b"), "'a..b' cannot be published to", 2),
        (("publish", "small", "--nats-server", "nats://127.0.0.1:1"), "127.0.0.1:1", 1),
        (("failover", "small", "--nats-server", "nats://127.0.0.1:1"), "127.0.0.1:1", 1),
        (("publish", "small", "--size", "2000"), "message size exceeds maximum allowed", 1),
        (("publish", "small", "--size", "99000000"), "NATS takes 1048576 at most", 1),
        (("failover", "small", "--creds", "/absent"), "--creds: /absent cannot be read", 2),
    ],
)
def test_what_cannot_be_published(
    small: Cli, arguments: tuple[str, ...], said: str, code: int
) -> None:
    assert said in small.refused("bench", *arguments, code=code)


@pytest.mark.parametrize(
    ("arguments", "said", "code"),
    [
        (("absent",), "absent", 1),
        (("bare",), "nothing to read", 1),
        (("bare", "--partition", "1"), "no partition 1", 1),
        (("bare", "--from", "first"), "--from: 'first' is no position", 2),
        (("bare", "--from", "7"), "offset 7 is outside [0, 0]", 1),
        (("bare", "--bootstrap-server", "127.0.0.1:1"), "127.0.0.1:1", 1),
    ],
)
def test_what_cannot_be_read(cli: Cli, arguments: tuple[str, ...], said: str, code: int) -> None:
    cli.ok("stream", "add", "bare")
    assert said in cli.refused("bench", "consume", *arguments, code=code)


def test_too_many_to_keep(cli: Cli) -> None:
    asked = ("--rate", "1000000", "--seconds", "3600")
    assert "too many to keep" in cli.refused("bench", "latency", "x", *asked, code=2)


def test_two_streams_of_one_subject_are_noticed(cli: Cli) -> None:
    cli.ok("stream", "add", "twice-a", "--subject", "twice")
    cli.ok("stream", "add", "twice-b", "--subject", "twice")
    # At the first message; with more than may be in flight, in the end at the latest.
    done = cli.run("bench", "publish", "twice", "--count", "50000")
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"more than one stream stores 'twice'" in done.stderr
