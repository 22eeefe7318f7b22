"""``streamlog export`` and ``streamlog import`` against a real node: nothing is lost, changed or doubled."""

import random
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from confluent_kafka import Producer

import streamlog.arrow
from streamlog.record.columns import COLUMNS
from tests.spark.live_node import TIMEOUT_S, LiveNode
from tools.nodes.server_process import program, wait_until

PARTITIONS = 2
COUNT = 3_000


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveNode]:
    node = LiveNode(tmp_path_factory.mktemp("node"))
    node.start()
    fill(node, "source")
    yield node
    node.stop()


def fill(node: LiveNode, stream: str, count: int = COUNT, value_bytes: int = 20) -> None:
    """Keys, values and headers of all kinds, in two partitions, times that go back."""
    node.create(stream, PARTITIONS, **{"message.timestamp.type": "CreateTime"})
    rng = random.Random(stream)
    kinds = (None, b"", b'text, "quoted"\n', rb"\N", b"base64:", "größer".encode())
    producer = Producer({"bootstrap.servers": node.kafka})
    for number in range(count):
        value: bytes | None = rng.randbytes(value_bytes)
        if value_bytes < 100:
            value = rng.choice((*kinds, value, b"value %d" % number))
        headers: list[tuple[str, str | bytes | None]] | None = None
        if number % 5 == 0:
            headers = [("a", rng.choice(kinds)), ("a", None)]
        producer.produce(
            stream,
            value,
            rng.choice(kinds),
            number % PARTITIONS,
            timestamp=1_700_000_000_000 + rng.randrange(10_000),
            headers=headers,
        )
        producer.poll(0)
    assert producer.flush(TIMEOUT_S) == 0


def streamlog_command(node: LiveNode, *arguments: str) -> list[str]:
    return [program("streamlog"), *arguments, "--bootstrap-server", node.kafka]


def run(node: LiveNode, *arguments: str, code: int = 0) -> tuple[str, str]:
    command = streamlog_command(node, *arguments)
    done = subprocess.run(command, capture_output=True, timeout=120, check=False)
    said, warned = done.stdout.decode(), done.stderr.decode()
    assert done.returncode == code, said + warned
    return said, warned


def table(node: LiveNode, stream: str, **asked: Any) -> pa.Table:
    """All of it but for its name."""
    reader = streamlog.arrow.read(stream, servers=node.kafka, columns=COLUMNS, **asked)
    return reader.read_all().drop_columns(["topic"])


@pytest.mark.parametrize("name", ["parquet", "jsonl", "csv"])
def test_what_is_exported_and_imported_is_equal(node: LiveNode, tmp_path: Path, name: str) -> None:
    node.create(f"copy-{name}", PARTITIONS, **{"message.timestamp.type": "CreateTime"})
    file = tmp_path / f"records.{name}"
    said, _ = run(node, "export", "source", "--output", str(file))
    assert said == f"{COUNT} records of source are in {file}\n"
    said, _ = run(node, "import", f"copy-{name}", str(file))
    assert said == f"{COUNT} records written to copy-{name}\n"
    assert table(node, f"copy-{name}").equals(table(node, "source"))


def test_a_folder_has_a_file_for_each_partition(node: LiveNode, tmp_path: Path) -> None:
    node.create("copy-folder", PARTITIONS, **{"message.timestamp.type": "CreateTime"})
    run(node, "export", "source", "--format", "jsonl", "--output", f"{tmp_path}/out/")
    files = sorted(map(str, (tmp_path / "out").iterdir()))
    assert [Path(it).name for it in files] == ["source-0.jsonl", "source-1.jsonl"]
    run(node, "import", "copy-folder", *files)
    assert table(node, "copy-folder").equals(table(node, "source"))
    _, warned = run(node, "export", "source", "--format", "jsonl", "-o", f"{tmp_path}/out", code=2)
    assert "source-0.jsonl is there already; name another, or set --force" in warned


def test_a_pipe_and_a_data_folder_will_do(node: LiveNode, tmp_path: Path) -> None:
    node.create("copy-pipe", PARTITIONS, **{"message.timestamp.type": "CreateTime"})
    data_dir = str(next(node.data_dir.glob("node-*")))
    lines = tmp_path / "lines.csv"
    by_path = [
        program("streamlog"),
        "export",
        "source",
        "--path",
        data_dir,
        "--format",
        "csv",
        "-o",
        "-",
    ]
    with lines.open("wb") as file:
        subprocess.run(by_path, stdout=file, check=True, timeout=60)
    command = streamlog_command(node, "import", "copy-pipe", "-", "--format", "csv")
    with lines.open("rb") as file:
        subprocess.run(command, stdin=file, check=True, timeout=60, stdout=subprocess.PIPE)
    assert table(node, "copy-pipe").equals(table(node, "source"))


def test_ranges_columns_and_partitions(node: LiveNode, tmp_path: Path) -> None:
    file = tmp_path / "some.parquet"
    some = ("--columns", "offset,partition", "--partition", "1", "--from", "7", "--to", "11")
    run(node, "export", "source", *some, "-o", str(file))
    found = pl.read_parquet(file)
    assert found.columns == ["offset", "partition"]
    assert found.rows() == [(offset, 1) for offset in range(7, 11)]


def test_other_programs_read_what_is_exported(node: LiveNode, tmp_path: Path) -> None:
    for name in ("parquet", "jsonl", "csv"):
        run(node, "export", "source", "-o", f"{tmp_path}/records.{name}")
    for call in ("read_parquet", "read_json", "read_csv"):
        file = f"{tmp_path}/records.{call.removeprefix('read_').replace('json', 'jsonl')}"
        query = f"select count(*), max(\"offset\") from {call}('{file}')"
        assert duckdb.execute(query).fetchall() == [(COUNT, COUNT // PARTITIONS - 1)]


def test_mistakes_are_said_in_a_line(node: LiveNode, tmp_path: Path) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"value": "a", "partition": 0}\n{"value": 1}\n')
    for arguments, problem, code in (
        (("export", "nowhere", "-o", "x.csv"), "has no stream 'nowhere'; it has", 1),
        (("export", "source", "-o", "x.txt"), "--format: the ending of x.txt does not say it", 2),
        (("export", "source", "-o", "/nowhere/x.csv"), "/nowhere cannot be written to", 2),
        (("export", "source", "-o", "x.csv", "--from", "soon"), "--from: 'soon' is no position", 2),
        (("import", "source", "/nowhere/x.csv"), "/nowhere/x.csv: No such file", 2),
        (("import", "nowhere", str(bad)), "there is no stream 'nowhere'; create it first", 1),
        (("import", "source", str(bad)), "bad.jsonl, line 2: '1' is neither text nor null", 1),
        (("import", "source", "-", "--format", "csv", "--id", "a"), "--id: what came from", 2),
    ):
        _, warned = run(node, *arguments, code=code)
        assert problem in warned
    assert table(node, "source").num_rows == COUNT


def test_a_killed_export_leaves_no_file_of_that_name(node: LiveNode, tmp_path: Path) -> None:
    fill(node, "long", 40_000, 1_000)
    file = tmp_path / "long.jsonl"
    process = subprocess.Popen(streamlog_command(node, "export", "long", "-o", str(file)))
    wait_until(lambda: any(tmp_path.glob(".long.jsonl.*.partial")) or file.exists(), "no file")
    process.kill()
    process.wait(30)
    assert not file.exists()
    run(node, "export", "long", "-o", str(file))
    with file.open("rb") as lines:
        assert sum(1 for _ in lines) == 40_000


def test_a_killed_import_goes_on_where_it_was(node: LiveNode, tmp_path: Path) -> None:
    if "long" not in node.created:
        fill(node, "long", 40_000, 1_000)
    node.create("copy-long", PARTITIONS, **{"message.timestamp.type": "CreateTime"})
    file = str(tmp_path / "long.jsonl")
    run(node, "export", "long", "-o", file)
    command = streamlog_command(node, "import", "copy-long", file, "--id", "monday")

    def stored() -> int:
        found = streamlog.arrow.plan("copy-long", servers=node.kafka)
        return found.offset_count

    rounds = 0
    for number in (signal.SIGKILL, signal.SIGINT):
        before = stored()
        process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 30
        while stored() == before and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        process.send_signal(number)
        _, warned = process.communicate(timeout=30)
        assert b"run the same command with --id monday to write what is missing" in warned
        rounds += 0 < stored() < 40_000
    assert rounds, "no import was interrupted"
    said, _ = run(node, "import", "copy-long", file, "--id", "monday")
    assert "were there already" in said
    assert table(node, "copy-long").equals(table(node, "long"))
