"""``streamlog.arrow.read`` by files and by servers, against what was written."""

import pickle
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from threading import Thread
from typing import Any

import psutil
import pytest

import streamlog.arrow
from streamlog.arrow import DataLoss, SecurityFiles
from streamlog.arrow.servers import fetch_reader
from streamlog.client.security import ClientLogin, Security
from streamlog.config import SaslSection
from streamlog.errors import (
    AuthenticationFailed,
    ConfigError,
    CorruptBatch,
    NodeUnreachable,
    PartitionNotFound,
    StreamNotFound,
)
from streamlog.record.columns import COLUMNS, REQUIRED
from tests.kafka_node import ThreadedNode
from tests.record_batches import HandRecord
from tests.spark.data_folder import DataFolder
from tools.nodes.ports import free_port

T0 = datetime(2026, 1, 1, tzinfo=UTC)
T0_MS = int(T0.timestamp() * 1000)


@pytest.fixture
def folder(tmp_path: Path) -> DataFolder:
    """Two partitions of 6 and 3 records, in batches of two and three; one a second."""
    folder = DataFolder(tmp_path)
    subjects = (b"flights.JFK.UA", b"flights.JFK.AA", b"flights.LGA.UA")

    def record(number: int) -> HandRecord:
        return HandRecord(b"v%d" % number, b"k", [(b"subject", subjects[number % 3])])

    batches = [[record(0), record(1)], [record(2), record(3)], [record(4), record(5)]]
    folder.segment(batches, timestamp_ms=T0_MS)
    folder.segment([[record(0), record(1), record(2)]], partition=1, timestamp_ms=T0_MS + 1_000)
    return folder


def read(folder: DataFolder, **asked: Any) -> list[tuple[int, int]]:
    """Partitions and offsets."""
    reader = streamlog.arrow.read("orders", path=folder.path, **asked)
    table = reader.read_all()
    return list(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))


ALL = [(0, 0), (0, 1), (0, 2), (0, 3), (0, 4), (0, 5), (1, 0), (1, 1), (1, 2)]


def test_all_columns_but_headers_come_by_partition_and_offset(folder: DataFolder) -> None:
    reader = streamlog.arrow.read("orders", path=folder.path)
    assert reader.schema.names == [name for name in COLUMNS if name != "headers"]
    assert {it.name for it in reader.schema if not it.nullable} == set(REQUIRED)
    rows = reader.read_all().to_pylist()
    assert [(row["partition"], row["offset"]) for row in rows] == ALL
    assert rows[7] == {
        "key": b"k",
        "value": b"v1",
        "topic": "orders",
        "partition": 1,
        "offset": 1,
        "timestamp": T0 + timedelta(seconds=1),
        "timestampType": 1,
        "subject": "flights.JFK.AA",
    }


def test_columns_come_in_the_order_that_was_asked_for(folder: DataFolder) -> None:
    reader = streamlog.arrow.read("orders", path=folder.path, columns=["headers", "offset"])
    table = reader.read_all()
    assert table.column_names == ["headers", "offset"]
    assert table["headers"][0].as_py() == [{"key": "subject", "value": b"flights.JFK.UA"}]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"partitions": [1]}, ALL[6:]),
        ({"partitions": 0}, ALL[:6]),
        ({"start": 2, "end": 3}, [(0, 2), (1, 2)]),
        ({"start": {0: 4, 1: "earliest"}, "end": {0: "latest", 1: 1}}, [(0, 4), (0, 5), (1, 0)]),
        ({"start": T0 + timedelta(seconds=1)}, [*ALL[2:6], *ALL[6:]]),
        ({"end": T0 + timedelta(seconds=1)}, ALL[:2]),
        ({"start": T0 + timedelta(microseconds=1)}, [*ALL[2:6], *ALL[6:]]),
        ({"start": T0 + timedelta(seconds=2)}, ALL[4:6]),
        ({"start": T0 + timedelta(days=1)}, []),
        ({"subjects": "flights.LGA.UA"}, [(0, 2), (0, 5), (1, 2)]),
        ({"subjects": ["flights.LGA.UA", "flights.*.AA"]}, [*ALL[1:3], *ALL[4:6], *ALL[7:]]),
        ({"subjects": "flights.>", "partitions": [1]}, ALL[6:]),
        ({"subjects": "flights.*"}, []),
    ],
)
def test_only_what_matches_comes_out(
    folder: DataFolder, asked: dict[str, Any], expected: list[tuple[int, int]]
) -> None:
    assert read(folder, **asked) == expected


def test_a_time_may_be_of_any_zone(folder: DataFolder) -> None:
    elsewhere = (T0 + timedelta(seconds=2)).astimezone(timezone(timedelta(hours=-5)))
    assert read(folder, start=elsewhere) == ALL[4:6]


def test_a_record_outside_of_the_time_never_comes_out(tmp_path: Path) -> None:
    """A producer's clock goes back: the position of the time does not keep it out."""
    folder = DataFolder(tmp_path)
    deltas = (0, 900, 100, 1_000, 500)
    folder.segment([[HandRecord(b"", timestamp_delta=it) for it in deltas]])
    start = datetime.fromtimestamp(1.4, UTC)  # batches by hand begin at 1 s
    assert read(folder, start=start) == [(0, 1), (0, 3), (0, 4)]
    assert read(folder, start=start, columns=["partition", "offset"]) == [(0, 1), (0, 3), (0, 4)]


def test_a_record_without_subject_matches_no_subject(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    folder.segment([[HandRecord(b"a"), HandRecord(b"b", None, [(b"subject", b"x.y")])]])
    assert read(folder, subjects=">") == [(0, 1)]
    assert read(folder) == [(0, 0), (0, 1)]


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        ({"columns": ["offest"]}, r"columns: there is no 'offest'; choose from key, value"),
        ({"columns": []}, "columns: there is none"),
        ({"columns": ["offset", "offset"]}, "columns: 'offset' is named twice"),
        ({"partitions": []}, "partitions: there is none"),
        ({"partitions": [-1]}, "partitions: -1 is none"),
        ({"start": "latest"}, "start: from latest on"),
        ({"end": "earliest"}, "end: from earliest on"),
        ({"start": "yesterday"}, "start: 'yesterday' is no position; give earliest"),
        ({"start": -3}, "start: -3 is no position"),
        ({"start": True}, "start: True is no position"),
        ({"start": datetime(2026, 1, 1)}, "start: 2026-01-01 00:00:00 has no time zone"),
        ({"start": T0, "end": T0 - timedelta(1)}, "start: it is later than the end"),
        ({"start": 4}, r"start: orders-1: offset 4 is outside of what can be read, \[0, 3\)"),
        ({"start": {0: 1}}, "start: the read says nothing of orders-1"),
        (
            {"end": {0: 1, 1: 1}, "partitions": [0]},
            "end: the read has no such partition as orders-1",
        ),
        ({"start": 3, "end": 2}, "start: orders-0: the read would start at 3 and end at 2"),
        ({"subjects": "a..b"}, r"subjects: 'a\.\.b' is no subject"),
        ({"subjects": ["a.>.b"]}, "subjects: 'a.>.b' is no subject"),
        ({"batch_rows": 0}, "batch_rows: 0 is wrong; set a whole number from 1"),
        ({"batch_bytes": 1 << 40}, "batch_bytes: 1099511627776 is wrong"),
        ({"fetch_retries": -1}, "fetch_retries: -1 is wrong"),
        ({"security": SecurityFiles()}, "security: it is for reading from servers"),
        ({"servers": "a:1"}, "servers: path is given, too"),
        ({"encryption_keys": {"k": "nowhere"}}, "encryption_keys: number 1 does not say where"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    folder: DataFolder, asked: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ConfigError, match=f"^{problem}"):
        streamlog.arrow.read("orders", path=folder.path, **asked)


def test_servers_are_checked_at_once(folder: DataFolder) -> None:
    with pytest.raises(ConfigError, match=r"^servers: is missing, and so is path"):
        streamlog.arrow.read("orders")
    with pytest.raises(ConfigError, match=r"^servers: 'a' is no address"):
        streamlog.arrow.read("orders", servers="a")
    with pytest.raises(ConfigError, match=r"^encryption_keys: nodes decrypt"):
        streamlog.arrow.read("orders", servers="a:1", encryption_keys={})
    wrong: Any
    for name, wrong in (("servers", ["a:1"]), ("path", 5)):
        with pytest.raises(ConfigError, match=f"^{name}: {re.escape(repr(wrong))} is no "):
            streamlog.arrow.read("orders", **{name: wrong})
    with pytest.raises(ConfigError, match=r"^security: it is of type dict; give SecurityFiles"):
        wrong = {"user": "alice"}
        streamlog.arrow.read("orders", servers="a:1", security=wrong)
    with pytest.raises(NodeUnreachable):
        streamlog.arrow.read("orders", servers=f"127.0.0.1:{free_port()}")
    with pytest.raises(ConfigError, match=r"^security\.key_file: .*cert_file|cert_file.*key_file"):
        SecurityFiles(cert_file="c.pem")


def test_what_is_not_there_is_named(folder: DataFolder) -> None:
    with pytest.raises(StreamNotFound, match="has no stream 'flights'; it has orders"):
        streamlog.arrow.read("flights", path=folder.path)
    with pytest.raises(PartitionNotFound, match="has no partition orders-7"):
        streamlog.arrow.read("orders", path=folder.path, partitions=[0, 7])
    with pytest.raises(ConfigError, match=r"^path: there is no folder"):
        streamlog.arrow.read("orders", path=folder.path / "elsewhere")


def test_damage_is_raised_while_reading(folder: DataFolder) -> None:
    (segment,) = folder.partition().glob("*.log")
    data = bytearray(segment.read_bytes())
    data[-1] ^= 1
    segment.write_bytes(data)
    reader = streamlog.arrow.read("orders", path=folder.path)
    with pytest.raises(CorruptBatch, match=r"\.log at byte \d+: .*checksum"):
        reader.read_all()


def test_lost_records_are_an_error_or_a_warning(
    folder: DataFolder, caplog: pytest.LogCaptureFixture
) -> None:
    def planned(**asked: Any) -> streamlog.arrow.ReadPlan:
        return streamlog.arrow.plan("orders", path=folder.path, columns=["offset"], **asked)

    strict, lax = planned(), planned(fail_on_data_loss=False)
    (segment,) = folder.partition(partition=1).glob("*.log")
    segment.unlink()
    with pytest.raises(DataLoss, match=r"orders-1.*fail_on_data_loss=False"):
        strict.reader().read_all()
    assert lax.reader().read_all()["offset"].to_pylist() == [0, 1, 2, 3, 4, 5]
    assert "records lost: orders-1, offsets [0, 3)" in caplog.text


def test_a_plan_can_be_read_again_and_says_how_much_there_is(folder: DataFolder) -> None:
    plan = streamlog.arrow.plan("orders", path=folder.path, start=1)
    assert plan.offset_count == 7
    assert [(it.start_offset, it.end_offset) for it in plan.ranges] == [(1, 6), (1, 3)]
    assert plan.reader().read_all().num_rows == plan.reader().read_all().num_rows == 7


def test_a_plan_can_be_read_in_another_process(folder: DataFolder) -> None:
    plan = streamlog.arrow.plan("orders", path=folder.path, subjects="flights.LGA.*")
    sent = pickle.loads(pickle.dumps(plan))
    assert sent.reader().read_all().equals(plan.reader().read_all())
    assert [it.num_rows for it in sent.rows(sent.ranges[1])] == [1]


def test_rows_written_after_the_plan_do_not_come(folder: DataFolder) -> None:
    reader = streamlog.arrow.read("orders", path=folder.path)
    folder.segment([[b"late"]], 6)
    assert reader.read_all().num_rows == len(ALL)


def test_batches_are_as_small_as_was_asked_for(folder: DataFolder) -> None:
    reader = streamlog.arrow.read("orders", path=folder.path, batch_rows=2)
    assert [batch.num_rows for batch in reader] == [2, 2, 2, 2, 1]


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[ThreadedNode]:
    monkeypatch.setattr(fetch_reader, "WAIT_MS", 20)
    with ThreadedNode() as node:
        node.add_stream("orders")
        for i in range(40):
            node.append("orders", [b"value %d" % j for j in range(50 * i, 50 * i + 50)])
        yield node


def test_servers_give_the_same(node: ThreadedNode) -> None:
    reader = streamlog.arrow.read("orders", servers=node.address, start=7, end=1993)
    table = reader.read_all()
    assert table["value"].to_pylist() == [b"value %d" % i for i in range(7, 1993)]
    assert table["offset"].to_pylist() == list(range(7, 1993))


def test_a_login_comes_out_of_files_or_from_the_caller(tmp_path: Path) -> None:
    word = tmp_path / "word"
    word.write_text("secret\n")
    sasl = SaslSection(mechanisms=("SCRAM-SHA-512",), failure_delay_ms=0)
    by_files = SecurityFiles(user="alice", password_file=str(word))
    by_caller = Security(login=ClientLogin("SCRAM-SHA-512", "alice", lambda: "secret"))
    with ThreadedNode(sasl=sasl) as node:
        node.call(lambda: node.node.metadata.add_user("alice", "secret"))
        node.add_stream("orders")
        node.append("orders", [b"a", b"b"])
        for security in (by_files, by_caller):
            reader = streamlog.arrow.read("orders", servers=node.address, security=security)
            assert reader.read_all()["value"].to_pylist() == [b"a", b"b"]
        word.write_text("wrong\n")
        with pytest.raises(AuthenticationFailed):
            streamlog.arrow.read("orders", servers=node.address, security=by_files)


def test_several_threads_may_read_one_reader(node: ThreadedNode) -> None:
    reader = streamlog.arrow.read("orders", servers=node.address, batch_rows=10)
    offsets: list[int] = []

    def take() -> None:
        for batch in reader:
            offsets.extend(batch.column("offset").to_pylist())

    threads = [Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(offsets) == list(range(2000))


def test_a_dropped_reader_closes_its_connection(node: ThreadedNode) -> None:
    port = int(node.address.rpartition(":")[2])

    def connections() -> int:
        found = psutil.Process().net_connections("tcp")
        return sum(bool(it.raddr) and it.raddr.port == port for it in found)

    before = connections()
    reader = streamlog.arrow.read("orders", servers=node.address, batch_rows=10)
    reader.read_next_batch()
    assert connections() > before
    del reader
    assert connections() == before


def test_neither_spark_nor_a_server_is_imported() -> None:
    program = (
        "import sys, streamlog.arrow, streamlog.arrow.sink.task_writer;"
        "import streamlog.arrow.files.file_reader, streamlog.arrow.servers.fetch_reader;"
        "found = {'pyspark', 'nats', 'aiohttp', 'asyncio', 'streamlog.partition'} & set(sys.modules);"
        "sys.exit(str(found) if found else 0)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
