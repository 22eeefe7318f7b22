"""Columns by a schema, dead letters, upkeep, and the view of a table and the log."""

import json
import os
import shutil
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyiceberg", reason="the extra `lake` is not installed")

import pyarrow as pa

from streamlog.errors import CatalogUnavailable, ConfigError
from streamlog.lake import union
from streamlog.lake.maintain import Done, Upkeep, maintain
from streamlog.lake.position import RecordsGone
from streamlog.lake.table import LakeTable
from streamlog.lake.upkeep_thread import UpkeepPlan, UpkeepThread
from streamlog.record.schema.table_schema import TableSchema
from tests.lake_table import StreamTable, sql_catalog
from tests.spark.live_node import LiveNode
from tools.nodes.server_process import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INTEGER = {"type": "integer"}
TEXT = {"type": "string"}


@pytest.fixture
def table(tmp_path: Path, request: pytest.FixtureRequest) -> StreamTable:
    stream = request.node.name.replace("test_", "")[:40].split("[")[0]
    return StreamTable(tmp_path, stream, sql_catalog(tmp_path))


def json_schema(folder: Path, **properties: object) -> str:
    path = folder / "schema.json"
    path.write_text(json.dumps({"properties": properties, "required": ["id"]}))
    return str(path)


def test_values_that_fit_are_rows_and_others_dead_letters(
    node: LiveNode, table: StreamTable
) -> None:
    node.create(table.stream)
    schema = json_schema(table.folder, id=INTEGER, name=TEXT)
    node.produce(table.stream, [b'{"id": 1, "name": "a"}', b'{"id": "x"}', b'{"id": 2}', b"no"])
    table.run_once(node, "--schema", schema)
    rows = [(it["_offset"], it["id"], it["name"]) for it in table.rows()]
    assert sorted(rows) == [(0, 1, "a"), (2, 2, None)]
    dead = table.dead_letters.load().scan().to_arrow().to_pylist()
    assert [(it["offset"], it["value"]) for it in dead] == [(1, b'{"id": "x"}'), (3, b"no")]
    assert dead[0]["reason"] == 'id is no integer: "x"'


def setting(**properties: object) -> str:
    return "json " + json.dumps({"properties": properties})


def alter(node: LiveNode, stream: str, key: str, value: str) -> None:
    from confluent_kafka.admin import (
        AdminClient,
        AlterConfigOpType,
        ConfigEntry,
        ConfigResource,
        ResourceType,
    )

    entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, stream, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": node.kafka})
    (future,) = admin.incremental_alter_configs([resource]).values()
    future.result(30)


def follow_a_schema(node: LiveNode, table: StreamTable, *options: str) -> None:
    """A job goes on while the stream's schema gets a column."""
    node.create(table.stream)
    alter(node, table.stream, "streamlog.table_schema", setting(id=INTEGER))
    job = table.job(node, "--interval", "0.2", *options)
    job.spawn()
    try:
        node.produce(table.stream, [b'{"id": 1, "name": "a"}', b'{"id": "x"}'])
        wait_until(lambda: table.table.exists() and len(table.rows()) == 1, "the first row", 90)
        alter(node, table.stream, "streamlog.table_schema", setting(id=INTEGER, name=TEXT))
        wait_until(lambda: "name" in table.table.load().schema().column_names, "the column", 60)
        node.produce(table.stream, [b'{"id": 2, "name": "b"}'])
        wait_until(lambda: len(table.rows()) == 2, "the second row", 60)
        assert job.is_running(), job.log_text()[-3_000:]
    finally:
        job.kill()
    rows = [(it["_offset"], it["id"], it["name"]) for it in table.rows()]
    assert sorted(rows) == [(0, 1, None), (2, 2, "b")]
    assert table.dead_letters.load().scan().to_arrow()["offset"].to_pylist() == [1]
    table.check_ranges()


def test_the_stream_names_the_schema(node: LiveNode, table: StreamTable) -> None:
    follow_a_schema(node, table, "--engine", "local")
    rows = union(
        table.stream, table.name.table, servers=node.kafka, catalog="tests",
        catalog_properties=table.name.properties,
    ).read_all()  # fmt: skip
    assert sorted(rows["id"].to_pylist()) == [1, 2]
    job = table.job(node, "--engine", "local", "--once", "--schema", "none")
    job.spawn()
    assert job.wait(60) == 2, "the flag overrides the setting: bytes do not fit the table"
    assert "do not fit" in job.log_text()


@pytest.mark.parametrize("by", ["flag", "setting"])
def test_protobuf_is_written_by_its_descriptors(
    node: LiveNode, table: StreamTable, tmp_path: Path, by: str
) -> None:
    pytest.importorskip("google.protobuf", reason="the extra `console` is not installed")
    from tests.unit.lake.protobuf_schema import MESSAGE, descriptor_set, order

    table = StreamTable(tmp_path, f"protobuf_{by}", sql_catalog(tmp_path))
    node.create(table.stream)
    path = table.folder / "shop.desc"
    path.write_bytes(descriptor_set())
    told: tuple[str, ...] = ("--schema", f"{path}:{MESSAGE}")
    if by == "setting":
        told = ()
        text = str(TableSchema("protobuf", descriptor_set(), MESSAGE))
        alter(node, table.stream, "streamlog.table_schema", text)
    full = order(id=1, kind=1, items=[{"name": "a", "prices": [1.5]}], counts={"x": 2})
    values = [full.SerializeToString(), full.SerializeToString()[:-1], b"\xff\xff"]
    node.produce(table.stream, [*values, b"\xf8\x06\x01"])
    table.run_once(node, *told)
    first, last = sorted(table.rows(), key=lambda row: int(row["_offset"]))
    assert (first["id"], first["kind"], first["counts"]) == (1, "BOOK", [("x", 2)])
    assert first["items"] == [{"name": "a", "count": 0, "prices": [1.5]}]
    assert (last["_offset"], last["id"], last["items"]) == (3, 0, []), "a field is unknown"
    dead = table.dead_letters.load().scan().to_arrow().to_pylist()
    assert [(it["offset"], it["value"]) for it in dead] == [(1, values[1]), (2, values[2])]


@pytest.mark.spark
@pytest.mark.slow
def test_spark_follows_the_schema_that_the_stream_names(node: LiveNode, tmp_path: Path) -> None:
    table = StreamTable(tmp_path, "schema_by_spark", sql_catalog(tmp_path))
    follow_a_schema(node, table, "--master", "local[2]")


def test_a_schema_may_get_columns_and_wider_types(node: LiveNode, table: StreamTable) -> None:
    node.create(table.stream)
    avro = table.folder / "schema.avsc"

    def write(*fields: tuple[str, str]) -> None:
        told = [{"name": name, "type": kind} for name, kind in fields]
        avro.write_text(json.dumps({"type": "record", "name": "r", "fields": told}))

    write(("a", "int"))
    node.produce(table.stream, [b"\x02"])
    table.run_once(node, "--schema", str(avro))
    write(("a", "long"), ("b", "string"))
    node.produce(table.stream, [b"\x04\x02z", b"\x04"])
    table.run_once(node, "--schema", str(avro))
    rows = sorted((it["_offset"], it["a"], it["b"]) for it in table.rows())
    assert rows == [(0, 1, None), (1, 2, "z")]
    assert table.table.load().scan().to_arrow().schema.field("a").type == pa.int64()
    assert table.dead_letters.load().scan().count() == 1
    write(("a", "string"))
    job = table.job(node, "--engine", "local", "--once", "--schema", str(avro))
    job.spawn()
    assert job.wait(60) == 2
    assert "do not fit" in job.log_text(), job.log_text()


def test_a_table_of_bytes_may_get_a_schema_while_the_job_goes_on(
    node: LiveNode, table: StreamTable
) -> None:
    node.create(table.stream)
    job = table.job(node, "--interval", "0.2", "--engine", "local", "--partition-by", "day")
    job.spawn()
    try:
        node.produce(table.stream, [b'{"id": 1}'])
        wait_until(lambda: table.table.exists() and len(table.rows()) == 1, "the first row", 60)
        alter(node, table.stream, "streamlog.table_schema", setting(id=INTEGER))
        wait_until(lambda: "id" in table.table.load().schema().column_names, "the column", 60)
        node.produce(table.stream, [b'{"id": 2}', b"no"])
        wait_until(lambda: len(table.rows()) == 2, "the second row", 60)
        node.produce(table.stream, [b'{"id": 4}'])
        wait_until(lambda: len(table.rows()) == 3, "the third row", 60)
        assert job.is_running(), job.log_text()[-3_000:]
    finally:
        job.kill()
    rows = [(it["offset"], it["value"], it["id"]) for it in table.rows()]
    assert sorted(rows) == [(0, b'{"id": 1}', None), (1, None, 2), (3, None, 4)]
    assert table.dead_letters.load().scan().to_arrow()["offset"].to_pylist() == [2]
    table.check_ranges()
    done = maintain(table.table, Upkeep(files_min=3, log_starts={0: 1}))
    assert done.aged_files == 1, "files are known by the record's columns"
    node.produce(table.stream, [b'{"id": 5}'])
    where = {"catalog": "tests", "catalog_properties": table.name.properties}
    view = union(table.stream, table.name.table, servers=node.kafka, **where)  # type: ignore[arg-type]
    assert sorted(view.read_all()["id"].to_pylist()) == [2, 4, 5]
    alter(node, table.stream, "streamlog.table_schema", "")
    with pytest.raises(ConfigError, match="the stream names none"):
        union(table.stream, table.name.table, servers=node.kafka, **where)  # type: ignore[arg-type]
    view = union(table.stream, table.name.table, servers=node.kafka, schema="none", **where)  # type: ignore[arg-type]
    assert sorted(view.read_all()["offset"].to_pylist()) == [1, 3, 4]
    table.run_once(node)
    (last,) = (it for it in table.rows() if it["offset"] == 4)
    assert (last["value"], last["id"]) == (b'{"id": 5}', None)


def test_a_field_with_the_name_of_a_column_of_records_needs_another_table(
    node: LiveNode, table: StreamTable
) -> None:
    node.create(table.stream)
    node.produce(table.stream, [b'{"id": 1}'])
    table.run_once(node)
    before = table.rows()
    job = table.job(
        node,
        "--engine",
        "local",
        "--once",
        "--schema",
        json_schema(table.folder, id=INTEGER, key=TEXT),
    )
    job.spawn()
    assert job.wait(60) == 2
    assert "the field key has the name" in job.log_text(), job.log_text()
    assert "another table" in job.log_text()
    assert table.rows() == before


def test_dead_letters_come_once_though_the_table_was_not_committed_to(
    node: LiveNode, table: StreamTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job dies between the two commits."""
    from streamlog.arrow.options.read_options import ReadOptions
    from streamlog.arrow.options.subscription import StreamSubscription
    from streamlog.lake.columns.schema_columns import schema_columns
    from streamlog.lake.job import JobOptions, LakeJob, run_without_spark

    node.create(table.stream)
    schema = json_schema(table.folder, id=INTEGER)
    node.produce(table.stream, [b'{"id": 1}', b"bad", b'{"id": 2}'])
    read = ReadOptions(servers=node.kafka, subscription=StreamSubscription((table.stream,)))
    options = JobOptions(table.stream, read, table.name, schema_columns(schema))
    commit = LakeTable.commit

    def killed(self: LakeTable, *arguments: object, **options: object) -> object:
        if self.name == table.name:
            raise CatalogUnavailable("killed")
        return commit(self, *arguments, **options)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(LakeTable, "commit", killed)
        with pytest.raises(CatalogUnavailable):
            run_without_spark(LakeJob(options), once=True, wait=lambda _: False)
    assert table.dead_letters.load().scan().count() == 1
    assert not table.rows()
    node.produce(table.stream, [b"also bad"])
    table.run_once(node, "--schema", schema)
    dead = table.dead_letters.load().scan().to_arrow()["offset"].to_pylist()
    assert sorted(dead) == [1, 3]
    assert sorted(it["_offset"] for it in table.rows()) == [0, 2]


def test_upkeep_keeps_rows_and_position(node: LiveNode, table: StreamTable) -> None:
    node.create(table.stream, 2)
    for first in range(0, 1_000, 100):
        records = [(b"%d" % (i % 7), b"%050d" % i) for i in range(first, first + 100)]
        node.produce_keyed(table.stream, records)
        table.run_once(node, "--partition-by", "hour")
    before = len(list(table.table.load().scan().plan_files()))
    data = table.folder / "warehouse"
    orphan = next(data.rglob("*.parquet")).with_name("0-0-1-orphan.parquet")
    orphan.write_bytes(b"of a killed job")
    position = table.table.position()
    done = maintain(table.table, Upkeep(expire_ms=0, orphan_ms=0), now=time.time() + 60)
    assert done.small_files == before
    assert table.table.position() == position
    loaded = table.table.load()
    assert len(list(loaded.scan().plan_files())) == done.large_files < before
    assert len(loaded.snapshots()) == 1
    assert not orphan.exists()
    paths = {it.file.file_path.removeprefix("file://") for it in loaded.scan().plan_files()}
    assert {str(it) for it in data.rglob("*.parquet")} == paths
    node.produce(table.stream, [b"more"])
    table.run_once(node)
    there = Counter((it["partition"], it["offset"], it["value"]) for it in table.rows())
    expected = Counter(
        (number, it.offset, it.value)
        for number in range(2)
        for it in node.records(table.stream, number)
    )
    assert there == expected
    command = table.command("maintain", "--bootstrap-server", node.kafka, "--follow-retention")
    from tools.nodes.server_process import ServerProcess

    process = ServerProcess(command, table.folder / "maintain.log")
    process.spawn()
    assert process.wait(60) == 0, process.log_text()


@pytest.mark.parametrize(
    "engine", ["local", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.slow])]
)
def test_a_job_keeps_its_table_up(node: LiveNode, tmp_path: Path, engine: str) -> None:
    table = StreamTable(tmp_path, f"kept_up_{engine}", sql_catalog(tmp_path))
    node.create(table.stream)
    node.produce(table.stream, [b"%050d" % i for i in range(50)])
    table.run_once(node)
    stray = next((table.folder / "warehouse").rglob("*.parquet")).with_name("0-0-1-stray.parquet")
    stray.write_bytes(b"of a killed job")
    foreign = stray.parent.parent / "foreign.txt"
    foreign.write_text("of somebody else")
    for path in (stray, foreign):
        os.utime(path, (1, 1))
    options = ["--engine", engine, "--interval", "0.1", "--maintain-interval", "1s"]
    options += ["--expire", "2s", "--orphans", "1h", "--follow-retention"]
    options += ["--master", "local[2]"] if engine == "spark" else []
    job = table.job(node, *options)
    job.spawn()
    try:
        for first in range(50, 1_050, 50):
            node.produce(table.stream, [b"%050d" % i for i in range(first, first + 50)])
            commits = job.log_text().count("committed")
            wait_until(lambda: job.log_text().count("committed") > commits, "a commit", 90)  # noqa: B023

        def is_kept_up() -> bool:
            loaded = table.table.load()
            return len(loaded.snapshots()) < 4 and len(list(loaded.scan().plan_files())) < 4

        wait_until(is_kept_up, "upkeep", 60)
        wait_until(lambda: not stray.exists(), "the orphan is gone", 60)
        node.produce(table.stream, [b"last"])
        wait_until(lambda: len(table.rows()) == 1_051, "the last row", 60)
        assert job.is_running(), job.log_text()[-3_000:]
        assert "failed" not in job.log_text()
        job.ask_to_stop()
        assert job.wait(30) == 0, job.log_text()[-3_000:]
    finally:
        job.kill()
    assert foreign.exists()
    assert table.check_rows(node) == 1_051


def test_a_job_that_ends_keeps_its_table_up_at_the_end(node: LiveNode, table: StreamTable) -> None:
    node.create(table.stream)
    alter(node, table.stream, "streamlog.table_schema", setting(id=INTEGER))
    for number in range(3):
        node.produce(table.stream, [b'{"id": %d}' % number, b"no"])
        assert "small files" not in table.run_once(node)
    node.produce(table.stream, [b'{"id": 3}', b"no"])
    told = table.run_once(node, "--maintain", "--expire", "1ms", "--maintain-interval", "never")
    assert f"{table.name.table}: 4 small files are 1 now" in told, told
    assert f"{table.name.dead_letters.table}: 4 small files are 1 now" in told, told
    for each in (table.table.load(), table.dead_letters.load()):
        assert len(list(each.scan().plan_files())) == 1
        assert len(each.snapshots()) == 1, "those that are older than a millisecond have expired"
    assert sorted(it["id"] for it in table.rows()) == [0, 1, 2, 3]
    job = table.job(node, "--engine", "local", "--maintain")
    job.spawn()
    assert job.wait(60) == 2
    assert "--maintain: it is for the end of a job" in job.log_text()


def test_the_schema_is_read_in_a_data_folder(node: LiveNode, table: StreamTable) -> None:
    """While the node runs, and of a copy of it, as far as the copy has the metadata."""
    node.create(table.stream)
    alter(node, table.stream, "streamlog.table_schema", setting(id=INTEGER))
    node.produce(table.stream, [b'{"id": 1}', b"no"])
    data_dir = node.folder(table.stream).parents[2]

    def committed() -> bool:
        job = table.job(node, "--engine", "local", "--once", "--path", str(data_dir))
        job.spawn()
        code, told = job.wait(60), job.log_text()
        if (
            code == 2 and "settings are unknown" in told
        ):  # it is not noted yet that the stream is there
            return False
        assert code == 0, told[-3_000:]
        return table.table.exists() and len(table.rows()) == 1

    wait_until(committed, "what is committed is noted each second", 60)
    (row,) = table.rows()
    assert (row["_offset"], row["id"]) == (0, 1)
    copy = table.folder / "copy"
    shutil.copytree(data_dir, copy)
    shutil.rmtree(copy / "metadata")
    without = table.job(node, "--engine", "local", "--once", "--path", str(copy))
    without.spawn()
    assert without.wait(60) == 2
    assert "the stream's settings are unknown; write --schema FILE, or" in without.log_text()
    job = table.job(node, "--engine", "local", "--once", "--path", str(copy),
                    "--schema", json_schema(table.folder, id=INTEGER))  # fmt: skip
    job.spawn()
    assert job.wait(60) == 0, job.log_text()


def test_upkeep_goes_on_after_a_failure(tmp_path: Path) -> None:
    done: list[Done | None] = []
    table = StreamTable(tmp_path, "nothing", sql_catalog(tmp_path / "none"))
    plan = UpkeepPlan(Upkeep(), interval_s=0.01)
    with UpkeepThread(table.name, plan, log_starts=dict, told=done.append, patience_s=0.0):
        wait_until(lambda: len(done) > 2, "several tries", 30)
    assert set(done) == {None}
    assert not any(it.name == "streamlog-lake-upkeep" for it in threading.enumerate())


def test_files_of_records_before_the_log_start_go(node: LiveNode, table: StreamTable) -> None:
    node.create(table.stream)
    for first in (0, 100):
        node.produce(table.stream, [b"%d" % i for i in range(first, first + 100)])
        table.run_once(node)
    done = maintain(table.table, Upkeep(files_min=99, log_starts={0: 150}))
    assert done.aged_files == 1
    assert sorted(it["offset"] for it in table.rows()) == list(range(100, 200))
    table.run_once(node)
    assert len(table.rows()) == 100


def test_the_union_has_the_table_and_what_follows_it(node: LiveNode, table: StreamTable) -> None:
    node.create(table.stream, 2)
    records = [(b"%d" % (i % 7), b"%d" % i) for i in range(500)]
    node.produce_keyed(table.stream, records[:300])
    table.run_once(node)
    node.produce_keyed(table.stream, records[300:])
    where = {"catalog": "tests", "catalog_properties": table.name.properties}
    reader = union(table.stream, table.name.table, servers=node.kafka, **where)  # type: ignore[arg-type]
    table.run_once(node)
    node.produce_keyed(table.stream, [(b"later", b"later")])
    rows = reader.read_all()
    found = Counter(zip(rows["partition"].to_pylist(), rows["offset"].to_pylist(), strict=True))
    assert set(found.values()) == {1}
    assert Counter(rows["value"].to_pylist()) == Counter(value for _, value in records)
    with pytest.raises(ConfigError, match="has no columns"):
        union(table.stream, table.name.table, servers=node.kafka,
              schema=json_schema(table.folder, id=INTEGER), **where)  # type: ignore[arg-type]  # fmt: skip


def test_records_that_the_log_lost_before_the_table_had_them_are_told(
    node: LiveNode, table: StreamTable
) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    node.create(table.stream)
    node.produce(table.stream, [b"%d" % i for i in range(10)])
    table.run_once(node)
    node.produce(table.stream, [b"%d" % i for i in range(10, 30)])
    admin = AdminClient({"bootstrap.servers": node.kafka})
    (future,) = admin.delete_records([TopicPartition(table.stream, 0, 20)]).values()
    future.result(30)
    job = table.job(node, "--engine", "local", "--once")
    job.spawn()
    assert job.wait(60) == 1
    assert "--allow-loss" in job.log_text(), job.log_text()
    with pytest.raises(RecordsGone):
        union(table.stream, table.name.table, servers=node.kafka, catalog="tests",
              catalog_properties=table.name.properties)  # fmt: skip
    table.run_once(node, "--allow-loss")
    assert sorted(it["offset"] for it in table.rows()) == [*range(10), *range(20, 30)]


@pytest.mark.spark
def test_spark_reads_the_union(spark: "SparkSession", node: LiveNode, tmp_path: Path) -> None:
    from pyspark_streamlog.lake.union import union

    table = StreamTable(tmp_path, "union_by_spark", sql_catalog(tmp_path))
    node.create(table.stream, 2)
    records = [(b"%d" % (i % 7), b"%d" % i) for i in range(500)]
    node.produce_keyed(table.stream, records[:300])
    table.run_once(node)
    node.produce_keyed(table.stream, records[300:])
    rows = union(
        spark, table.stream, table.name.table, servers=node.kafka,
        catalog="tests", catalog_properties=dict(table.name.properties),
    )  # fmt: skip
    table.run_once(node)
    found = [bytes(row.value) for row in rows.collect()]
    assert Counter(found) == Counter(value for _, value in records)
    assert rows.count() == 500
    assert rows.filter("partition = 1").count() == len(node.records(table.stream, 1))
