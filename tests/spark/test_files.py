"""File systems beyond the machine's own, by way of pyarrow and fsspec."""

from pathlib import Path

import pytest
from pyarrow.fs import LocalFileSystem

from pyspark_streamlog.options.read_options import SourceOptions
from streamlog.arrow.files import stream_folder
from streamlog.arrow.files.file_reader import FileReader
from streamlog.arrow.files.file_system import (
    ArrowFiles,
    Files,
    LocalFiles,
    files_at,
    opened,
    read_small,
)
from streamlog.arrow.offset_ranges import plan_offset_ranges
from streamlog.arrow.range_reader import open_location
from streamlog.errors import ConfigError
from streamlog.record.columns import arrow_schema
from tests.spark.data_folder import DataFolder


@pytest.fixture(params=["local", "arrow"])
def files(request: pytest.FixtureRequest) -> Files:
    return LocalFiles() if request.param == "local" else ArrowFiles(LocalFileSystem())


def test_every_file_system_reads_alike(files: Files, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"0123456789")
    (tmp_path / "b").mkdir()
    (tmp_path / "c").mkdir()
    assert files.children(str(tmp_path)) == ({"a": 10}, ["b", "c"])
    with opened(files, f"{tmp_path}/a") as file:
        assert (file.size(), file.pread(4, 8), file.pread(4, 20)) == (10, b"89", b"")
        buffer = bytearray(4)
        assert file.read_into(buffer, 3) == 4
        assert buffer == b"3456"
        assert file.read_into(buffer, 8) == 2
        assert buffer[:2] == b"89"
    assert read_small(files, f"{tmp_path}/a") == b"0123456789"
    with pytest.raises(FileNotFoundError):
        files.open(f"{tmp_path}/d")
    with pytest.raises(FileNotFoundError):
        files.children(f"{tmp_path}/d")


def test_a_folder_is_read_through_pyarrow(
    folder: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.segment([[b"v"] * 5] * 4)
    folder.segment([[b"w"] * 5] * 4, 20, torn=b"torn")
    remote = ArrowFiles(LocalFileSystem()), str(folder.path)
    monkeypatch.setattr(stream_folder, "files_at", lambda _: remote)
    options = SourceOptions.parse({"path": "s3://bucket/node", "subscribe": "orders"})
    place = open_location(options)
    tasks = place.cut(plan_offset_ranges(place, options), 300, 1)
    assert len(tasks) > 1
    found = [
        value
        for task in tasks
        for batch in FileReader(task, options, arrow_schema(["value"])).read()
        for value in batch.to_pydict()["value"]
    ]
    assert found == [b"v"] * 20 + [b"w"] * 20


def test_a_url_is_a_file_system_and_a_path_in_it(
    folder: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeFileSystem, "root", str(folder.path))
    monkeypatch.setattr("pyarrow.fs.FileSystem", FakeFileSystem)
    folder.segment([[b"v"] * 5])
    files, path = files_at("hdfs://somewhere:8020/node")
    assert files.children(f"{path}/streams/orders/0")[0].keys() >= {f"{0:020d}.log"}


class FakeFileSystem:
    """As pyarrow finds one by its URL: this machine's own, whatever is asked for."""

    root = ""

    @classmethod
    def from_uri(cls, uri: str) -> tuple[LocalFileSystem, str]:
        assert uri == "hdfs://somewhere:8020/node"
        return LocalFileSystem(), cls.root


def test_a_url_that_nobody_knows_is_refused_with_the_remedy() -> None:
    with pytest.raises(
        ConfigError, match=r"^path: neither pyarrow nor fsspec can read gopher:// here .*; install"
    ):
        files_at("gopher://somewhere/data")


def test_a_secret_in_a_url_is_refused_and_not_repeated() -> None:
    with pytest.raises(ConfigError, match=r"^path: .*no secret may be in it") as caught:
        files_at("s3://key:hunter2@bucket/data")
    assert "hunter2" not in str(caught.value)
