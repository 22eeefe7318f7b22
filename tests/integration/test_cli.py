"""The commands against a running node, as a person or a script uses them."""

import base64
import fcntl
import json
import os
import pty
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cli_program import TIMEOUT_S, Cli
from tools.nodes.server_process import program, wait_until


@pytest.fixture(scope="module")
def cli(dev: Any) -> Cli:
    return Cli(dev)


def test_the_life_of_a_stream(cli: Cli) -> None:
    assert cli.ok("stream", "add", "life", "--subject", "life.>", "--subject", "alive") == (
        "stream life stores life.>, alive\n"
    )
    again = cli.ok("stream", "add", "life", "--subject", "life.>", "--subject", "alive")
    assert "there already" in again
    assert "life" in cli.ok("stream", "ls")

    cli.ok("stream", "edit", "life", "--max-age", "10m", "--sync", "os")
    config = cli.json("stream", "info", "life")["config"]
    assert (config["retention_ms"], config["sync"]) == (600000, "os")
    assert config["subjects"] == ["life.>", "alive"]

    cli.ok("publish", "life.a", "x", "--count", "10", "--ack")
    details = cli.json("stream", "info", "life")
    (partition,) = details["partitions"]
    assert (details["messages"], partition["log_start_offset"], partition["high_watermark"]) == (
        10,
        0,
        10,
    )

    assert cli.json("stream", "purge", "life", "--before", "4", "--yes")["purged"] == 4
    assert cli.json("stream", "purge", "life", "--keep", "1", "--yes")["purged"] == 5
    assert cli.ok("consume", "life") == "x\n"
    assert "removed" in cli.ok("stream", "rm", "life", "--yes")
    assert "life" not in [it["config"]["name"] for it in cli.json("stream", "ls")]
    assert "there is no stream 'life'" in cli.refused("stream", "info", "life")


def test_what_a_mirror_lacks(cli: Cli) -> None:
    """Beside what STREAM.INFO says of it: also where there is no NATS."""
    cli.ok("stream", "add", "origin", "--subject", "origin")
    cli.ok("stream", "add", "copy", "--mirror", "origin")
    cli.ok("stream", "add", "both", "--subject", "both", "--sources", "origin,gone")
    cli.ok("publish", "origin", "x", "--count", "10", "--ack")
    wait_until(lambda: cli.json("stream", "info", "copy")["messages"] == 10, "the copy")
    (partition,) = cli.json("stream", "info", "copy")["partitions"]
    (told,) = partition["origins"]
    assert (told["name"], told["lag"], told["error"]) == ("origin", 0, None)
    assert 0 <= told["active_ms"] < 60_000

    def of_sources() -> dict[str, Any]:
        (partition,) = cli.json("stream", "info", "both")["partitions"]
        return {it["name"]: it for it in partition["origins"]}

    wait_until(lambda: of_sources()["gone"]["error"], "the error")
    assert of_sources()["gone"]["error"] == "stream not found"
    shown = cli.ok("stream", "info", "both").splitlines()
    (row,) = [it for it in shown if " gone " in it and "never" in it]
    assert row.endswith("stream not found"), row
    assert not [it for it in cli.ok("stream", "info", "origin").splitlines() if "ORIGIN" in it]
    for name in ("both", "copy", "origin"):
        cli.ok("stream", "rm", name, "--yes")


def test_removal_asks_first(cli: Cli) -> None:
    cli.ok("stream", "add", "asked")
    cli.ok("publish", "asked", "x", "--ack")
    for command in ("rm", "purge"):
        done = cli.run("stream", command, "asked", stdin=b"n\n")
        assert done.returncode == 1
        assert b"for ever?" in done.stderr
        assert cli.run("stream", command, "asked").returncode == 1  # nobody to ask
    assert cli.ok("consume", "asked") == "x\n"
    assert cli.run("stream", "purge", "asked", stdin=b"y\n").returncode == 0
    assert cli.ok("consume", "asked") == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("stream", "add", "a/b"), "a/b"),
        (("stream", "add", "__own"), "reserved"),
        (("stream", "add", "x", "--subject", "a b"), "a b"),
        (("stream", "info", "absent"), "there is no stream 'absent'"),
        (("stream", "edit", "absent", "--sync", "os"), "there is no stream 'absent'"),
        (("stream", "rm", "absent", "--yes"), "there is no stream 'absent'"),
        (("consume", "absent"), "absent"),
        (("publish", "nobody.listens", "x", "--ack"), "no stream listens"),
        (("publish", "a b", "x", "--ack"), "a b"),
    ],
)
def test_what_is_refused(cli: Cli, arguments: tuple[str, ...], said: str) -> None:
    assert said in cli.refused(*arguments)


def test_a_wrong_value_is_refused_by_the_name_of_its_option(cli: Cli) -> None:
    for option, value in (("--sync", "never"), ("--max-bytes", "0"), ("--max-age", "soon")):
        done = cli.run("stream", "add", "x", option, value)
        assert done.returncode == 2
        assert f"Invalid value for '{option}'" in done.stderr.decode()


def test_a_name_taken_with_another_configuration(cli: Cli) -> None:
    cli.ok("stream", "add", "taken")
    assert "another configuration" in cli.refused("stream", "add", "taken", "--subject", "other")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("consume", "s", "--from", "first"), "--from: 'first' is no position"),
        (("publish", "s", "x", "--header", "none"), "--header: 'none' is no header"),
        (("cluster", "info", "--bootstrap-server", "nowhere"), "'nowhere' is no address"),
    ],
)
def test_wrong_arguments(cli: Cli, arguments: tuple[str, ...], said: str) -> None:
    assert said in cli.refused(*arguments, code=2)


def test_servers_that_are_not_there(cli: Cli) -> None:
    assert "127.0.0.1:1" in cli.refused("cluster", "info", "--bootstrap-server", "127.0.0.1:1")
    assert "127.0.0.1:1" in cli.refused("stream", "ls", "--bootstrap-server", "127.0.0.1:1")


def test_publishing(cli: Cli) -> None:
    cli.ok("stream", "add", "words", "--subject", "words.*")
    assert cli.ok("publish", "words.a", "one", "--ack") == "1 stored in words, offset 0\n"
    assert cli.ok("publish", "words.a", "-", "--ack", stdin=b"two\nlines") == (
        "1 stored in words, offset 1\n"
    )
    lines = cli.ok("publish", "words.b", "--lines", "--ack", stdin=b"three\nfour\n")
    assert lines == "2 stored in words, offsets 2 to 3\n"
    assert cli.ok("publish", "words.c", "five", "-H", "Streamlog-Key: k") == "1 published\n"
    assert cli.json("publish", "words.c", "x", "--count", "1")["stored"] is True
    assert cli.json("publish", "nowhere", "x")["stored"] is False, "no stream has it"
    summary = cli.json("publish", "words.c", "x", "--count", "3000", "--ack")
    assert (summary["published"], summary["last_offset"]) == (3000, 3005)
    expected = "one\ntwo\nlines\nthree\nfour\nfive\n"
    assert cli.ok("consume", "words", "--count", "5") == expected
    line = json.loads(cli.ok("consume", "words", "--from", "4", "--count", "1", "--json"))
    assert (line["offset"], line["key"], line["value"]) == (4, "k", "five")
    assert ["subject", "words.c"] in line["headers"]


def test_a_message_id_is_stored_once(cli: Cli) -> None:
    cli.ok("stream", "add", "once")
    for _ in range(2):
        cli.ok("publish", "once", "x", "--ack", "-H", "Nats-Msg-Id: 7")
    assert cli.ok("consume", "once") == "x\n"
    summary = cli.json("publish", "once", "x", "--ack", "-H", "Nats-Msg-Id:7")
    assert summary["duplicates"] == 1


def test_reading_from_positions(cli: Cli) -> None:
    cli.ok("stream", "add", "places")
    cli.ok("publish", "places", "--lines", "--ack", stdin=b"a\nb\n")
    time.sleep(0.01)
    between = datetime.now(UTC).isoformat()
    time.sleep(0.01)
    cli.ok("publish", "places", "--lines", "--ack", stdin=b"c\nd\n")
    assert cli.ok("consume", "places", "--from", "earliest") == "a\nb\nc\nd\n"
    assert cli.ok("consume", "places", "--from", "1", "--count", "2") == "b\nc\n"
    assert cli.ok("consume", "places", "--from", between) == "c\nd\n"
    assert cli.ok("consume", "places", "--from", "latest") == ""
    assert cli.ok("consume", "places", "--from", "4") == ""
    assert cli.ok("consume", "places", "--count", "0") == ""
    assert "offset 5 is outside [0, 4]" in cli.refused("consume", "places", "--from", "5")
    assert "no partition 1" in cli.refused("consume", "places", "--partition", "1")


def test_bytes_come_out_as_they_went_in(cli: Cli) -> None:
    cli.ok("stream", "add", "raw")
    data = bytes(range(256))
    cli.ok("publish", "raw", "-", "--ack", stdin=data)
    assert cli.run("consume", "raw").stdout == data + b"\n"
    (line,) = cli.ok("consume", "raw", "--json").splitlines()
    assert base64.b64decode(json.loads(line)["value"]["base64"]) == data


def test_following(cli: Cli) -> None:
    cli.ok("stream", "add", "tail", "--partitions", "2", "--subject", "tail")
    cli.ok("publish", "tail", "old", "--ack")
    command = cli.command("consume", "tail", "--from", "latest", "--follow")
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=cli.environment) as reader:
        try:
            assert b"old" not in read_until_both_came(cli, reader)
            reader.send_signal(signal.SIGINT)
            assert reader.wait(TIMEOUT_S) == 130
        finally:
            reader.kill()


def read_until_both_came(cli: Cli, reader: "subprocess.Popen[bytes]") -> bytes:
    """Nobody can tell when it has settled where "latest" is, so publish until it has."""
    assert reader.stdout is not None
    os.set_blocking(reader.stdout.fileno(), False)
    deadline, seen = time.monotonic() + TIMEOUT_S, b""
    while not (b"0\n" in seen and b"1\n" in seen):
        assert time.monotonic() < deadline, seen
        cli.ok("publish", "tail", "0", "--ack")
        cli.ok("publish", "tail.1", "1", "--ack")
        seen += reader.stdout.read() or b""
    return seen


def test_a_follower_stops_at_its_count(cli: Cli) -> None:
    cli.ok("stream", "add", "few", "--partitions", "2", "--subject", "few")
    cli.ok("publish", "few", "x", "--count", "5", "--ack")
    assert cli.ok("consume", "few", "--follow", "--count", "3") == "x\nx\nx\n"


def test_a_closed_pipe_is_no_error(cli: Cli) -> None:
    cli.ok("stream", "add", "pipe")
    cli.ok("publish", "pipe", "x" * 1000, "--count", "2000", "--ack")
    command = cli.command("consume", "pipe")
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=cli.environment
    ) as reader:
        assert reader.stdout is not None
        assert reader.stderr is not None
        reader.stdout.readline()
        reader.stdout.close()
        assert reader.wait(TIMEOUT_S) == 0
        assert reader.stderr.read() == b""


def test_cluster_info(cli: Cli, dev: Any) -> None:
    cli.ok("stream", "add", "seen", "--partitions", "2")
    cluster = cli.json("cluster", "info")
    host, _, port = dev.kafka.partition(":")
    assert cluster["controller"] == 1
    assert cluster["nodes"] == [{"node_id": 1, "host": host, "port": int(port), "rack": None}]
    (stream,) = [it for it in cluster["streams"] if it["name"] == "seen"]
    assert [(it["leader"], it["isr"]) for it in stream["partitions"]] == [(1, [1]), (1, [1])]
    table = cli.ok("cluster", "info")
    assert dev.kafka in table
    assert "seen" in table


def test_the_version() -> None:
    import streamlog

    done = subprocess.run(
        [sys.executable, "-m", "streamlog", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"streamlog {streamlog.__version__}\n"


def test_looking_into_a_log(cli: Cli, dev: Any, tmp_path: Path) -> None:
    cli.ok("stream", "add", "files")
    for word in ("one", "two", "three"):
        cli.ok("publish", "files", word, "--ack")
    folder = dev.data_dir / "node-1" / "streams" / "files" / "0"
    assert cli.json("log", "verify", str(folder))["findings"] == []
    assert "0 findings" in cli.ok("log", "verify", str(dev.data_dir / "node-1"))
    assert [batch["base_offset"] for batch in cli.json("log", "dump", str(folder))] == [0, 1, 2]
    records = cli.ok("log", "dump", str(folder), "--records").splitlines()
    assert [json.loads(line)["value"] for line in records] == ["one", "two", "three"]

    copy = tmp_path / "0"
    shutil.copytree(folder, copy)
    segment = copy / f"{0:020}.log"
    data = bytearray(segment.read_bytes())
    data[data.index(b"two")] ^= 1
    segment.write_bytes(data)
    done = cli.run("log", "verify", str(copy), "--json")
    (finding,) = json.loads(done.stdout)["findings"]
    assert (done.returncode, finding["offset"], finding["file"]) == (1, 1, str(segment))
    assert cli.run("log", "verify", str(copy / "absent")).returncode == 2


def test_top_shows_rates_of_nodes_and_streams_and_lags_of_groups(cli: Cli) -> None:
    cli.ok("stream", "add", "busy")
    cli.ok("publish", "busy", "x", "--count", "10", "--ack")
    cli.ok("group", "reset-offsets", "behind", "--stream", "busy", "--to-earliest", "--yes")
    command = cli.command("top", "--json", "--interval", "0.3")
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=cli.environment) as reader:
        try:
            assert reader.stdout is not None
            shown: dict[str, Any] = {}
            while not shown or not shown["streams"][0]["records_per_s"]:
                cli.ok("publish", "busy", "x", "--count", "500", "--ack")
                shown = json.loads(reader.stdout.readline())
        finally:
            reader.kill()
    assert (shown["streams"][0]["name"], shown["nodes"][0]["name"]) == ("busy", "1")
    assert shown["nodes"][0]["records_per_s"] >= shown["streams"][0]["records_per_s"]
    assert {it["group"] for it in shown["groups"] if it["lag"] >= 10} == {"behind"}
    text = cli.ok("top", "--once", "--interval", "0.2", "--rows", "2")
    assert "records/s" in text and "\x1b" not in text and "behind" in text


def completed(cli: Cli, *words: str, server: str | None = None) -> list[str]:
    """What bash is offered for the last word."""
    environment = {
        **cli.environment,
        "_STREAMLOG_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(["streamlog", *words]),
        "COMP_CWORD": str(len(words)),
        "STREAMLOG_CLIENT_BOOTSTRAP_SERVER": server or cli.kafka,
    }
    done = subprocess.run(
        [program("streamlog")], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stderr == "", done
    return done.stdout.split()


def test_the_tab_key_knows_streams_groups_and_nodes(cli: Cli) -> None:
    for name in ("tab-one", "tab-two"):
        cli.ok("stream", "add", name)
    cli.ok("group", "reset-offsets", "tabbed", "--stream", "tab-one", "--to-earliest", "--yes")
    assert completed(cli, "stream", "info", "tab-") == ["tab-one", "tab-two"]
    assert completed(cli, "consume", "tab-o") == ["tab-one"]
    assert completed(cli, "group", "info", "tab") == ["tabbed"]
    assert completed(cli, "cluster", "drain", "") == ["1"]
    assert completed(cli, "stream", "add", "tab-") == [], "a new name"


def test_the_tab_key_says_nothing_where_it_knows_nothing(cli: Cli, tmp_path: Path) -> None:
    assert completed(cli, "stream", "info", "", server="127.0.0.1:1") == []
    assert completed(cli, "stream", "info", "", server="nowhere") == []
    login = ("--user", "ann")  # whose password would have to be asked for
    assert completed(cli, "stream", "info", *login, "") == []


def test_top_is_redrawn_at_a_terminal_which_is_left_as_it_was(cli: Cli) -> None:
    cli.ok("stream", "add", "drawn")
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 70, 0, 0))
    command = cli.command("top", "--interval", "0.2")
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, env=cli.environment) as drawing:
        os.close(theirs)
        try:
            shown = b""
            while shown.count(b"STREAM") < 2:
                shown += os.read(ours, 65536)
            drawing.send_signal(signal.SIGINT)
            while b"\x1b[?1049l" not in shown:
                shown += os.read(ours, 65536)
            assert drawing.wait(TIMEOUT_S) == 130
        finally:
            drawing.kill()
            os.close(ours)
    assert shown.startswith(b"\x1b[?1049h") and b"drawn" in shown
    screens = shown.split(b"\x1b[H\x1b[2J")[1:]
    assert max(it.count(b"\n") for it in screens) < 24, "it scrolls"
