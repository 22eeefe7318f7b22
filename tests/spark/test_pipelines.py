"""A declarative pipeline of Spark over a stream, as docs/spark.md has it."""

import os
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.dataset
import pytest

from tools.nodes.server_process import program

if TYPE_CHECKING:
    from tests.spark.live_node import LiveNode

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/spark.md"
TIMEOUT_S = 600
COUNT = 500
CATALOG = "spark.sql.catalogImplementation=hive"


def example(language: str) -> str:
    """Of the page's chapter."""
    chapter = PAGE.read_text().partition("## Declarative pipelines")[2]
    found = re.search(rf"```{language}\n(.*?)```", chapter, re.DOTALL)
    assert found is not None
    return found[1]


def rows(folder: Path, table: str) -> list[dict[str, object]]:
    path = folder / "spark-warehouse" / table
    dataset = pyarrow.dataset.dataset(path, format="parquet", exclude_invalid_files=True)
    found: list[dict[str, object]] = dataset.to_table().to_pylist()
    return found


def test_a_pipeline_reads_each_record_once(node: "LiveNode", tmp_path: Path) -> None:
    """Over two runs, of which the second one reads what has come meanwhile."""
    pytest.importorskip("grpc_status", reason="pyspark[pipelines] is not installed")
    from pyspark_streamlog.java import prepare_environment

    prepare_environment()
    code, spec = example("python"), example("yaml")
    assert CATALOG in PAGE.read_text()
    assert "127.0.0.1:9092" in code
    assert "file:///pipelines/orders" in spec
    (tmp_path / "transformations").mkdir()
    (tmp_path / "transformations/orders.py").write_text(code.replace("127.0.0.1:9092", node.kafka))
    storage = (tmp_path / "storage").as_uri()
    (tmp_path / "spark-pipeline.yml").write_text(spec.replace("file:///pipelines/orders", storage))
    environment = {
        **os.environ,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "spark")]),
        "PYSPARK_PYTHON": program("python"),
    }
    node.create("orders")
    for run in (1, 2):
        node.produce("orders", [b"%d" % number for number in range(COUNT)])
        done = subprocess.run(
            [program("spark-pipelines"), "run", "--conf", CATALOG],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, (done.stdout + done.stderr)[-3_000:]
        offsets = sorted(int(str(row["offset"])) for row in rows(tmp_path, "orders"))
        assert offsets == list(range(run * COUNT))
        (counted,) = rows(tmp_path, "orders_by_subject")
        assert counted["count"] == run * COUNT
