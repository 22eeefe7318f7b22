"""What a task leaves in the heap of its Python worker; in a process of its own, as a worker is."""

import subprocess
import sys

import pytest

from tests.spark.data_folder import DataFolder

READ_TWICE = """
import gc, sys
from pyspark_streamlog.data_source import DefaultSource

source = DefaultSource({"path": sys.argv[1], "subscribe": "orders", "startingOffsets": "earliest"})
counts = [gc.get_freeze_count()]
for _ in range(2):
    if sys.argv[2] == "batch":
        reader = source.reader(source.schema())
        partitions = reader.partitions()
    else:
        from pyspark.sql.streaming.datasource import ReadAllAvailable

        reader = source.streamReader(source.schema())
        start = reader.initialOffset()
        partitions = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
    assert sum(batch.num_rows for it in partitions for batch in reader.read(it)) == 3
    counts.append(gc.get_freeze_count())
print(*counts)
"""


@pytest.mark.parametrize("kind", ["batch", "stream"])
def test_the_first_task_of_a_worker_freezes_what_is_loaded_and_no_later_one_adds_to_it(
    folder: DataFolder, kind: str
) -> None:
    folder.segment([[b"a", b"b", b"c"]])
    command = [sys.executable, "-c", READ_TWICE, str(folder.path), kind]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    before, first, second = map(int, run.stdout.split())
    assert before == 0
    assert first > 10_000
    assert second <= first
