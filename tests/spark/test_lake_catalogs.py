"""Tables in a REST catalog and in an object store, which are killed while a job goes on."""

import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

import pytest

pytest.importorskip("pyiceberg", reason="the extra `lake` is not installed")

from tests.lake_table import StreamTable, sql_catalog
from tests.peers.sources import cache
from tests.spark.live_node import LiveNode
from tests.stores import postgres
from tests.stores.postgres import PostgresServer
from tools import s3_server
from tools.maven import MavenError
from tools.nodes.server_process import wait_until
from tools.rest_catalog import RestCatalog, jars
from tools.s3_server import BUCKET, S3Server

pytestmark = pytest.mark.peers

OPTIONS = ["--engine", "local", "--interval", "0", "--commit-size", "200k"]
OPTIONS += ["--source-option", "maxBytesPerPartition=60000"]


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[RestCatalog]:
    if shutil.which("java") is None:
        pytest.skip("no Java")
    try:
        found = jars(cache())
    except MavenError as error:
        pytest.skip(str(error))
    server = RestCatalog(tmp_path, found)
    server.start()
    yield server
    server.kill()


class Publisher:
    """Publishes to two partitions until it is stopped."""

    def __init__(self, node: LiveNode, stream: str) -> None:
        self.count = 0
        self._node, self._stream = node, stream
        self._done = Event()
        self._thread = Thread(target=self._publish)

    def __enter__(self) -> "Publisher":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _publish(self) -> None:
        while not self._done.is_set():
            first, self.count = self.count, self.count + 300
            values = range(first, self.count)
            self._node.produce_keyed(self._stream, [(b"%d" % i, b"%0300d" % i) for i in values])
            self._done.wait(0.05)


@pytest.mark.slow
def test_a_job_outlives_the_catalog(node: LiveNode, catalog: RestCatalog, tmp_path: Path) -> None:
    table = StreamTable(tmp_path, "rest", catalog.properties)
    node.create(table.stream, 2)
    job = table.job(node, *OPTIONS)
    with Publisher(node, table.stream) as publisher:
        job.spawn()
        try:
            for round_ in range(1, 4):
                commits = job.log_text().count("committed")
                wait_until(
                    lambda: job.log_text().count("committed") > commits + 1,  # noqa: B023
                    f"commits of round {round_}", 60,
                )  # fmt: skip
                time.sleep(0.07 * round_)
                catalog.kill()
                catalog.start()
            commits = job.log_text().count("committed")
            wait_until(
                lambda: job.log_text().count("committed") > commits, "commits afterwards", 60
            )
            assert job.is_running(), job.log_text()[-3_000:]
        finally:
            job.kill()
    table.run_once(node)
    assert table.check(node, 2) == publisher.count


def test_a_job_outlives_postgres_and_its_own_death(node: LiveNode, tmp_path: Path) -> None:
    """Each round kills the job, the database, or both, at another moment of a commit."""
    pytest.importorskip("psycopg2", reason="the driver of Postgres is not installed")
    try:
        server = PostgresServer(tmp_path, postgres.binaries(cache()))
    except (MavenError, OSError) as error:
        pytest.skip(f"no Postgres: {error}")
    warehouse = f"file://{tmp_path / 'warehouse'}"
    catalog = {"type": "sql", "uri": server.url, "warehouse": warehouse}
    table = StreamTable(tmp_path, "postgres", catalog)
    node.create(table.stream, 2)
    job = table.job(node, *OPTIONS)
    server.start()
    try:
        with Publisher(node, table.stream) as publisher:
            job.spawn()
            for round_ in range(6):
                commits = job.log_text().count("committed")
                wait_until(
                    lambda: job.log_text().count("committed") > commits + 1,  # noqa: B023
                    f"commits of round {round_}", 60,
                )  # fmt: skip
                time.sleep(0.03 * round_)
                if round_ % 3 != 1:
                    server.kill()
                if round_ % 3:
                    job.kill()
                    job.spawn()
                server.start()
            commits = job.log_text().count("committed")
            wait_until(
                lambda: job.log_text().count("committed") > commits, "commits afterwards", 60
            )
            assert job.is_running(), job.log_text()[-3_000:]
            job.kill()
        table.run_once(node)
        assert table.check(node, 2) == publisher.count
    finally:
        job.kill()
        server.kill()


def test_a_catalog_of_folders_is_icebergs_own(node: LiveNode, tmp_path: Path) -> None:
    """A job that is killed commits to it. Iceberg's ``HadoopCatalog`` commits to the same table, reads it, and makes
    another one that is read here.
    """
    if shutil.which("java") is None:
        pytest.skip("no Java")
    try:
        found = jars(cache())
    except MavenError as error:
        pytest.skip(str(error))
    warehouse = tmp_path / "warehouse"
    folders = {"type": "hadoop", "warehouse": str(warehouse)}
    table = StreamTable(tmp_path, "folders", folders)
    node.create(table.stream, 2)
    server = RestCatalog(tmp_path, found, warehouse=warehouse)
    theirs = StreamTable(tmp_path, table.stream, server.properties)
    server.start()
    job, done = table.job(node, *OPTIONS, "--maintain-interval", "never"), 0
    try:
        with Publisher(node, table.stream) as publisher:
            for _ in range(3):
                job.spawn()
                commits = job.log_text().count("committed")
                while job.log_text().count("committed") < commits + 3:
                    assert job.is_running(), job.log_text()[-3_000:]
                    if table.table.exists():
                        done += set_property(theirs, "told", str(done + 1))
                job.kill()
        table.run_once(node)
        assert table.check(node, 2) == publisher.count
        assert done
        assert table.table.load().properties["told"] == str(done)
        assert theirs.check(node, 2) == publisher.count
        catalog = theirs.name.open_catalog()
        catalog.create_table("lake.made_there", theirs.table.load().schema())
        assert ("lake", "made_there") in table.name.open_catalog().list_tables("lake")
        assert table.name.open_catalog().load_table("lake.made_there").metadata.snapshots == []
    finally:
        job.kill()
        server.kill()


def set_property(table: StreamTable, name: str, value: str) -> bool:
    """False: another commit was faster."""
    from pyiceberg.exceptions import CommitFailedException

    try:
        with table.table.load().transaction() as transaction:
            transaction.set_properties({name: value})
    except CommitFailedException:
        return False
    return True


@pytest.fixture
def store(tmp_path: Path) -> Iterator[S3Server]:
    if shutil.which("java") is None:
        pytest.skip("no Java")
    try:
        found = s3_server.jars(cache())
    except MavenError as error:
        pytest.skip(str(error))
    with S3Server(tmp_path / "s3", found) as server:
        yield server


def table_in(store: S3Server, folder: Path, stream: str, kind: str = "sql") -> StreamTable:
    catalog = sql_catalog(folder) if kind == "sql" else {"type": kind}
    properties = catalog | {
        "warehouse": f"s3://{BUCKET}/warehouse",
        "s3.endpoint": store.endpoint,
        "s3.access-key-id": s3_server.ACCESS_KEY,
        "s3.secret-access-key": s3_server.SECRET_KEY,
        "s3.region": "us-east-1",
    }
    return StreamTable(folder, stream, properties)


def kill(store: S3Server) -> None:
    os.kill(store.pid, signal.SIGKILL)
    store.stop()  # what is left of it


@pytest.mark.slow
@pytest.mark.spark
def test_a_job_of_spark_outlives_the_store(node: LiveNode, store: S3Server, tmp_path: Path) -> None:
    """It is killed while executors write: some files of a micro-batch are there, and others are not. A task is tried
    once, so that it is the task itself which has to wait.
    """
    table = table_in(store, tmp_path, "store_spark")
    node.create(table.stream, 2)
    options = ["--master", "local[2,1]", "--interval", "0", "--commit-size", "400k"]
    options += ["--source-option", "maxBytesPerPartition=20000", "--maintain-interval", "never"]
    job = table.job(node, *options)

    def files() -> int:
        names = (name for _, _, them in os.walk(store.bucket_folder) for name in them)
        return sum(name.endswith(".parquet") for name in names)

    with Publisher(node, table.stream) as publisher:
        job.spawn()
        try:
            for away_s in (0.5, 3, 30):
                commits = job.log_text().count("committed")
                wait_until(
                    lambda: job.log_text().count("committed") > commits,  # noqa: B023
                    "a commit", 120,
                )  # fmt: skip
                before = files()
                wait_until(lambda: files() > before, "an executor writes", 60)  # noqa: B023
                kill(store)
                time.sleep(away_s)
                assert job.is_running(), job.log_text()[-3_000:]
                store.start()
            commits = job.log_text().count("committed")
            wait_until(
                lambda: job.log_text().count("committed") > commits, "commits afterwards", 120
            )
            assert job.is_running(), job.log_text()[-3_000:]
        finally:
            job.kill()
    table.run_once(node)
    assert table.check(node, 2) == publisher.count


@pytest.mark.parametrize("kind", ["sql", pytest.param("hadoop", marks=pytest.mark.slow)])
def test_a_job_outlives_the_store(
    node: LiveNode, store: S3Server, tmp_path: Path, kind: str
) -> None:
    table = table_in(store, tmp_path, f"store_{kind}", kind)
    node.create(table.stream, 2)
    with Publisher(node, table.stream) as publisher:
        job = table.job(node, *OPTIONS)
        try:
            for round_ in range(2):
                job.spawn()
                commits = job.log_text().count("committed")
                wait_until(
                    lambda: job.log_text().count("committed") > commits + 1,  # noqa: B023
                    "commits", 90,
                )  # fmt: skip
                store.stop()
                store.start()
                if round_:
                    continue
                job.kill()
        finally:
            job.kill()
    table.run_once(node)
    assert table.check(node, 2) == publisher.count
