"""The data source inside Spark: found by its name, planned on the driver, read by workers."""

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.record_batches import HandRecord
from tests.spark.conftest import A_KEY
from tests.spark.data_folder import DataFolder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from streamlog.log.encryption.key_ring import KeyRing

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]

HEADERS = [(b"subject", b"orders.eu"), (b"trace", None)]


@pytest.fixture
def log(folder: DataFolder) -> DataFolder:
    for base in (0, 100):
        folder.segment(
            [
                [HandRecord(b"v%d" % i, None if i % 3 else b"k", HEADERS) for i in range(b, b + 10)]
                for b in range(base, base + 100, 10)
            ],
            base,
            timestamp_ms=1_700_000_000_000,
        )
    folder.segment([[b"last"]], partition=1)
    folder.commit(150)
    return folder


def load(spark: "SparkSession", log: DataFolder, **options: Any) -> "DataFrame":
    return spark.read.format("streamlog").options(**options).load(str(log.path))


def test_the_source_is_found_by_its_name_and_reads_committed_rows(
    spark: "SparkSession", log: DataFolder
) -> None:
    frame = load(spark, log, subscribe="orders", minPartitions=4)
    assert frame.rdd.getNumPartitions() >= 4
    rows = frame.orderBy("partition", "offset").collect()
    assert len(rows) == 151
    assert [row.offset for row in rows[:150]] == list(range(150))
    assert [row.value for row in rows] == [b"v%d" % i for i in range(150)] + [b"last"]
    assert [row.key for row in rows[:4]] == [b"k", None, None, b"k"]
    assert {row.topic for row in rows} == {"orders"}
    assert rows[0].subject == "orders.eu"
    assert rows[150].subject is None
    assert rows[0].timestampType == 1
    assert rows[0].timestamp.timestamp() == 1_700_000_000
    assert "headers" not in frame.columns


def test_headers_come_when_asked_for(spark: "SparkSession", log: DataFolder) -> None:
    frame = load(spark, log, subscribe="orders", includeHeaders=True)
    rows = frame.where("offset = 7 or value = 'last'").orderBy("partition").collect()
    assert [(h.key, h.value) for h in rows[0].headers] == [
        ("subject", b"orders.eu"),
        ("trace", None),
    ]
    assert rows[1].headers is None


def test_any_columns_in_any_order_may_be_asked_for(spark: "SparkSession", log: DataFolder) -> None:
    reader = spark.read.format("streamlog").option("subscribe", "orders")
    frame = reader.schema("value binary, offset bigint").load(str(log.path))
    assert frame.columns == ["value", "offset"]
    assert frame.where("value = 'v42'").collect()[0].offset == 42


def test_sql_reads_a_view(spark: "SparkSession", log: DataFolder) -> None:
    spark.sql(
        "CREATE TEMPORARY VIEW orders USING streamlog"
        f" OPTIONS (path '{log.path / 'streams' / 'orders'}', endingTimestamp '1700000003000')"
    )
    counted = spark.sql("SELECT partition, count(*) AS n FROM orders GROUP BY 1 ORDER BY 1")
    assert [(row.partition, row.n) for row in counted.collect()] == [(0, 30), (1, 1)]
    spark.sql("DROP VIEW orders")


def test_an_empty_read_has_no_rows(spark: "SparkSession", log: DataFolder) -> None:
    frame = load(spark, log, assign='{"orders": [0]}', endingOffsets='{"orders": {"0": 0}}')
    assert frame.count() == 0


def test_an_encrypted_stream_is_read_with_its_key_on_driver_and_executors(
    spark: "SparkSession", folder: DataFolder, a_key: "KeyRing"
) -> None:
    folder.keys, folder.encrypts_each = a_key, 2
    records = [[HandRecord(b"v%d" % i, timestamp_delta=250 * i) for i in range(5)]] * 4
    folder.segment(records)
    with pytest.raises(
        Exception, match=r"'k1', .*; set the option encryption\.keys to NAME=SOURCE"
    ):
        load(spark, folder, subscribe="orders").collect()
    key = folder.path / "k1.key"
    key.write_text(A_KEY.hex())
    given = {"encryption.keys": f"k1=file:{key}", "startingTimestamp": "1500"}
    rows = load(spark, folder, subscribe="orders", minPartitions=3, **given).collect()
    assert sorted(row.offset for row in rows) == list(range(2, 20))
    assert {row.value for row in rows} == {b"v0", b"v1", b"v2", b"v3", b"v4"}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"subscribe": "nix"}, "has no stream 'nix'; it has orders"),
        ({"subscribe": "orders", "startingOffset": "1"}, "did you mean startingOffsets"),
        ({"subscribe": "orders", "servers": "a:1"}, "servers: path is given, too"),
    ],
)
def test_a_mistake_is_one_clear_message(
    spark: "SparkSession", log: DataFolder, options: dict[str, str], text: str
) -> None:
    from pyspark.errors import AnalysisException

    with pytest.raises(AnalysisException, match=text):
        load(spark, log, **options).count()


def test_damage_is_named_in_the_error_of_the_job(spark: "SparkSession", log: DataFolder) -> None:
    path = log.partition() / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(Exception, match=rf"{path} at byte \d+: .*its checksum is wrong"):
        load(spark, log, subscribe="orders").count()


def test_importing_the_package_is_cheap() -> None:
    """Every Spark application on the machine imports it when it looks for data sources."""
    check = (
        "import sys, pyspark_streamlog; from pyspark_streamlog import DefaultSource;"
        "heavy = {'pyarrow', 'nats', 'streamlog', 'pandas', 'asyncio'} & set(sys.modules);"
        "before = __import__('pyspark.sql.datasource'); sys.exit(str(heavy) if heavy else 0)"
    )
    run = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize(
    ("module", "packages", "foreign"),
    [
        ("files.file_reader", "record log tier wire", "nats asyncio pydantic kio aiohttp obstore"),
        (
            "files.stream_folder",
            "record log tier wire",
            "nats asyncio pydantic kio aiohttp obstore",
        ),
        (
            "servers.fetch_reader",
            "record log client tier wire authn tls",
            "nats asyncio pydantic aiohttp obstore",
        ),
        (
            "servers.cluster_location",
            "record log client tier wire authn tls",
            "nats asyncio pydantic aiohttp obstore",
        ),
    ],
)
def test_reading_loads_no_server(module: str, packages: str, foreign: str) -> None:
    """Executors stay light."""
    check = (
        f"import sys, pyspark_streamlog.source.batch_reader, streamlog.arrow.{module};"
        "loaded = {'.'.join(m.split('.')[:2]) for m in sys.modules};"
        f"allowed = {{'streamlog.' + m for m in '{packages} arrow condition errors model'.split()}};"
        "ours = {m for m in loaded if m.startswith('streamlog.')};"
        f"foreign = loaded & set('{foreign}'.split());"
        "sys.exit(str((ours - allowed) | foreign) if ours - allowed or foreign else 0)"
    )
    run = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
