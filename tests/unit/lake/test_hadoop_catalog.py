"""Tables in folders: what Iceberg's names are, that each commit takes effect once, and what is found after a crash."""

import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyiceberg", reason="the extra `lake` is not installed")

import pyarrow as pa
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)

from streamlog.errors import ConfigError
from streamlog.lake.catalog import TableName
from streamlog.lake.hadoop_catalog import HINT, HadoopCatalog

if TYPE_CHECKING:
    from pyiceberg.table import Table

SCHEMA = pa.schema([pa.field("id", pa.int64())])
NAME = ("lake", "flights")
FEW = {"write.metadata.delete-after-commit.enabled": "true"}
FEW |= {"write.metadata.previous-versions-max": "2"}


@pytest.fixture
def catalog(tmp_path: Path) -> HadoopCatalog:
    return HadoopCatalog("tests", warehouse=str(tmp_path))


def metadata_of(folder: Path) -> Path:
    return folder / "lake" / "flights" / "metadata"


def append(table: "Table", *ids: int) -> None:
    table.append(pa.table({"id": list(ids)}, schema=SCHEMA))


def ids_of(catalog: HadoopCatalog) -> list[int]:
    found = catalog.load_table(NAME).scan().to_arrow()["id"].to_pylist()
    return sorted(int(it) for it in found if it is not None)


def test_a_table_is_a_folder_with_numbered_versions(catalog: HadoopCatalog, tmp_path: Path) -> None:
    catalog.create_namespace("lake")
    table = catalog.create_table(NAME, SCHEMA)
    append(table, 1)
    append(catalog.load_table("lake.flights"), 2)
    folder = metadata_of(tmp_path)
    versions = sorted(it.name for it in folder.glob("v*.metadata.json"))
    assert versions == ["v1.metadata.json", "v2.metadata.json", "v3.metadata.json"]
    assert (folder / HINT).read_text() == "3"
    assert catalog.load_table(NAME).location() == f"{tmp_path}/lake/flights"
    assert ids_of(catalog) == [1, 2]
    assert catalog.list_namespaces() == [("lake",)]
    assert catalog.list_tables("lake") == [NAME]
    with pytest.raises(TableAlreadyExistsError):
        catalog.create_table(NAME, SCHEMA)
    with pytest.raises(NoSuchTableError):
        catalog.load_table("lake.other")
    with pytest.raises(NoSuchNamespaceError):
        catalog.list_tables("sea")
    catalog.drop_table(NAME)
    assert not catalog.table_exists(NAME)


def test_of_commits_from_one_version_one_takes_effect(catalog: HadoopCatalog) -> None:
    catalog.create_table(NAME, SCHEMA, properties={"commit.retry.num-retries": "0"})
    first, second = catalog.load_table(NAME), catalog.load_table(NAME)
    append(first, 1)
    with pytest.raises(CommitFailedException):
        append(second, 2)
    assert ids_of(catalog) == [1]


def test_commits_at_once_are_all_there(catalog: HadoopCatalog, tmp_path: Path) -> None:
    catalog.create_table(NAME, SCHEMA, properties=FEW)
    done: list[int] = []

    def write(start: int) -> None:
        own = HadoopCatalog("tests", warehouse=f"file://{tmp_path}")
        for number in range(start, start + 5):
            while True:
                try:
                    append(own.load_table(NAME), number)
                except CommitFailedException:
                    continue
                done.append(number)
                break

    threads = [threading.Thread(target=write, args=(start,)) for start in (0, 10, 20)]
    for it in threads:
        it.start()
    for it in threads:
        it.join()
    assert len(done) == 15
    assert ids_of(catalog) == sorted(done)


@pytest.mark.parametrize("hint", [None, b"", b"1", b"99", b"what"])
def test_the_newest_version_is_found_by_any_hint(
    catalog: HadoopCatalog, tmp_path: Path, hint: bytes | None
) -> None:
    """A crash leaves an old one, and it is not written atomically."""
    catalog.create_table(NAME, SCHEMA)
    for number in range(4):
        append(catalog.load_table(NAME), number)
    path = metadata_of(tmp_path) / HINT
    path.unlink()
    if hint is not None:
        path.write_bytes(hint)
    assert ids_of(catalog) == [0, 1, 2, 3]
    append(catalog.load_table(NAME), 4)
    assert ids_of(catalog) == [0, 1, 2, 3, 4]
    assert path.read_text() == "6"


def test_a_commit_that_comes_too_late_is_not_told_of_as_done(
    catalog: HadoopCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its writer stood still between its look at the table and its put, and the version it puts has been there, and
    has been removed.
    """
    properties = FEW | {"commit.retry.num-retries": "0"}
    catalog.create_table(NAME, SCHEMA, properties=properties)
    late = HadoopCatalog("late", warehouse=str(tmp_path))
    table, put = late.load_table(NAME), late._put
    version = 2

    def stand_still(*arguments: object) -> bool:
        for number in range(6):
            append(catalog.load_table(NAME), number)
        assert not (metadata_of(tmp_path) / f"v{version}.metadata.json").exists()
        return put(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(late, "_put", stand_still)
    with pytest.raises(CommitStateUnknownException):
        append(table, 77)
    assert ids_of(catalog) == [0, 1, 2, 3, 4, 5]
    assert not (metadata_of(tmp_path) / f"v{version}.metadata.json").exists()
    append(catalog.load_table(NAME), 6)
    assert ids_of(catalog) == [0, 1, 2, 3, 4, 5, 6]


def test_a_commit_that_others_went_on_from_is_done(
    catalog: HadoopCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its writer stood still right after its put."""
    catalog.create_table(NAME, SCHEMA, properties=FEW)
    slow = HadoopCatalog("slow", warehouse=str(tmp_path))
    table, put = slow.load_table(NAME), slow._put

    def stand_still(*arguments: object) -> bool:
        done = put(*arguments)  # type: ignore[arg-type]
        for number in range(6):
            append(catalog.load_table(NAME), number)
        return done

    monkeypatch.setattr(slow, "_put", stand_still)
    append(table, 77)
    assert ids_of(catalog) == [0, 1, 2, 3, 4, 5, 77]


def test_a_put_that_seemed_to_fail_is_recognized(catalog: HadoopCatalog) -> None:
    files = catalog._files
    assert files.create("a/v1", b"one")
    assert files.create("a/v1", b"one")
    assert not files.create("a/v1", b"two")
    assert files.read("a/v1") == b"one"


def test_versions_that_another_engine_compressed(catalog: HadoopCatalog, tmp_path: Path) -> None:
    import gzip

    append(catalog.create_table(NAME, SCHEMA), 1)
    plain = metadata_of(tmp_path) / "v2.metadata.json"
    plain.with_name("v2.gz.metadata.json").write_bytes(gzip.compress(plain.read_bytes()))
    plain.unlink()
    assert ids_of(catalog) == [1]
    append(catalog.load_table(NAME), 2)
    assert ids_of(catalog) == [1, 2]
    assert (metadata_of(tmp_path) / "v3.metadata.json").exists()


@pytest.mark.parametrize("warehouse", ["", "hdfs://names/lake", "ftp://host/lake"])
def test_a_warehouse_that_cannot_be(warehouse: str) -> None:
    with pytest.raises(ConfigError, match="warehouse"):
        TableName(
            "lake.flights", "tests", {"type": "hadoop", "warehouse": warehouse}
        ).open_catalog()


def test_a_table_is_where_its_name_says(catalog: HadoopCatalog, tmp_path: Path) -> None:
    catalog.create_namespace("lake")
    with pytest.raises(ConfigError, match="--location"):
        catalog.create_table(NAME, SCHEMA, location="/elsewhere")
    catalog.create_table(NAME, SCHEMA, location=f"{tmp_path}/lake/flights/")


def test_the_catalog_of_a_type_is_found_by_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__FOLDERS__TYPE", "hadoop")
    monkeypatch.setenv("PYICEBERG_CATALOG__FOLDERS__WAREHOUSE", str(tmp_path))
    found = TableName("lake.flights", "folders").open_catalog()
    assert isinstance(found, HadoopCatalog)
    assert found.warehouse == str(tmp_path)
