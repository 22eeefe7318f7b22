"""Stream to Spark to stream, with executors and the driver killed on the way: every record once."""

import os
import re
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.live_node import LiveNode
from tools.nodes.server_process import ServerProcess, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.slow]

RECORDS = 12_000
VALUE_BYTES = 1_000
TIMEOUT_S = 300.0


class Pipeline(ServerProcess):
    """The program, in a process group of its own with the executors."""

    def __init__(self, node: LiveNode, folder: Path) -> None:
        where = [node.kafka, "in", "out", str(folder / "checkpoint")]
        module = [sys.executable, "-m", "tests.spark.pipeline_program"]
        super().__init__([*module, *where], folder / "pipeline.log")

    def executors(self) -> Iterator[int]:
        """Their process ids."""
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                try:
                    command = (entry / "cmdline").read_bytes()
                    if os.getsid(int(entry.name)) != self.pid:
                        continue
                except OSError:  # it has ended
                    continue
                if b"CoarseGrainedExecutorBackend" in command:
                    yield int(entry.name)

    def clear(self) -> None:
        """Spark lets its executors work in a folder beside its own files."""
        import pyspark

        for name in re.findall(r"application (app-[\d-]+)", self.log_text()):
            shutil.rmtree(Path(pyspark.__path__[0]) / "work" / name, ignore_errors=True)

    def kill_an_executor(self) -> None:
        wait_until(lambda: any(self.executors()), "there is an executor", TIMEOUT_S)
        os.kill(next(self.executors()), signal.SIGKILL)


def test_no_record_comes_twice_and_none_is_missing(node: LiveNode, tmp_path: Path) -> None:
    node.create("in", 2)
    node.create("out", 3)
    values = [b"%0*d" % (VALUE_BYTES, number) for number in range(RECORDS)]
    keyed = [(b"%d" % (number % 97), value) for number, value in enumerate(values)]
    node.produce_keyed("in", keyed)
    stream = node.folder("out").parent

    def wait_written(share: float) -> None:
        def there() -> bool:
            assert pipeline.is_running(), pipeline.log_text()[-4_000:]
            return sum(it.stat().st_size for it in stream.glob("*/*.log")) >= wanted

        wanted = int(share * RECORDS * VALUE_BYTES)
        wait_until(there, f"{wanted} bytes are written", TIMEOUT_S)

    pipeline = Pipeline(node, tmp_path)
    pipeline.spawn()
    try:
        wait_written(0.05)
        pipeline.kill_an_executor()
        wait_written(0.35)
        pipeline.kill()
        written = len(node.values("out", 3))
        pipeline.spawn()
        wait_written((written + 1_000) / RECORDS)
        pipeline.kill_an_executor()
        assert pipeline.wait(TIMEOUT_S) == 0, pipeline.log_text()[-4_000:]
    finally:
        pipeline.kill()
        pipeline.clear()
    assert written < RECORDS
    assert Counter(node.values("out", 3)) == Counter(values)
    epochs = {it.producer_epoch for number in range(3) for it in node.headers("out", number)}
    assert len(epochs) > 1, "no attempt took over from another one"
