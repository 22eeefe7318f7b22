import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from streamlog.log.encryption.key_ring import KeyRing
from tests.spark.data_folder import DataFolder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.spark.live_node import LiveNode

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

A_KEY = bytes(range(32))


@pytest.fixture
def a_key(monkeypatch: pytest.MonkeyPatch) -> KeyRing:
    """Of the key ``k1``, which is in the environment variable ``A_KEY``."""
    monkeypatch.setenv("A_KEY", A_KEY.hex())
    return KeyRing({"k1": A_KEY}, "k1")


@pytest.fixture
def folder(tmp_path: Path) -> DataFolder:
    return DataFolder(tmp_path)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    from pyspark.sql import SparkSession

    from pyspark_streamlog.java import prepare_environment

    prepare_environment()
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    root = Path(__file__).parents[2]
    os.environ["PYTHONPATH"] = os.pathsep.join([str(root), str(root / "spark")])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = (
            SparkSession.builder.master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
            .getOrCreate()
        )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator["LiveNode"]:
    from tests.spark.live_node import LiveNode

    node = LiveNode(tmp_path_factory.mktemp("node"))
    node.start()
    yield node
    node.stop()
