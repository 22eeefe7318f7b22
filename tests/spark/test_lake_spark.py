"""A table written by executors, which are killed as the driver and Spark's Python workers are."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyiceberg", reason="the extra `lake` is not installed")

from tests.lake_table import StreamTable, sql_catalog
from tests.spark.live_node import LiveNode
from tools.nodes.server_process import ServerProcess, wait_until

pytestmark = pytest.mark.spark

RECORDS = 12_000
VALUE_BYTES = 500
TIMEOUT_S = 240.0
ROOT = Path(__file__).parents[2]


def processes(job: ServerProcess, text: bytes) -> Iterator[int]:
    """Of the job's session, whose command has the text."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                command = (entry / "cmdline").read_bytes()
                if os.getsid(int(entry.name)) != job.pid:
                    continue
            except OSError:  # it has ended
                continue
            if text in command:
                yield int(entry.name)


@pytest.mark.slow
@pytest.mark.parametrize("killed", ["driver", "worker", "executor"])
def test_nothing_is_doubled_or_missing_whatever_is_killed(
    node: LiveNode, tmp_path: Path, killed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = StreamTable(tmp_path, f"killed_{killed}", sql_catalog(tmp_path))
    node.create(table.stream, 2)
    node.produce_keyed(
        table.stream, [(b"%d" % (i % 97), b"%0*d" % (VALUE_BYTES, i)) for i in range(RECORDS)]
    )
    python_path = os.pathsep.join([str(ROOT), str(ROOT / "spark")])
    monkeypatch.setenv(
        "PYSPARK_SUBMIT_ARGS",
        f"--conf spark.executorEnv.PYTHONPATH={python_path} --conf spark.executor.memory=512m"
        " pyspark-shell",
    )
    master = "local-cluster[2,1,1024]" if killed == "executor" else "local[2,4]"
    job = table.job(
        node, "--once", "--master", master, "--commit-size", "600k",
        "--source-option", "maxBytesPerPartition=200000",
    )  # fmt: skip

    def committed(rows: int) -> bool:
        assert job.is_running(), job.log_text()[-4_000:]
        position = table.table.position() if table.table.exists() else None
        return position is not None and sum(position.ends.values()) >= rows

    def strike(text: bytes) -> None:
        wait_until(lambda: any(processes(job, text)), f"{text!r} runs", TIMEOUT_S)
        os.kill(max(processes(job, text)), signal.SIGKILL)

    job.spawn()
    try:
        wait_until(lambda: committed(1_000), "the first commits", TIMEOUT_S)
        if killed == "driver":
            job.kill()
        else:
            strike(b"pyspark.daemon" if killed == "worker" else b"CoarseGrainedExecutorBackend")
        if killed != "driver":
            assert job.wait(TIMEOUT_S) in (0, 1), job.log_text()[-4_000:]
        there = table.table.position()
        if killed == "driver":
            assert there is not None and sum(there.ends.values()) < RECORDS
    finally:
        job.kill()
    table.run_once(node)
    assert table.check(node, 2) == RECORDS
