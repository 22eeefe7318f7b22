import pytest

from streamlog.log.log import PartitionLog
from tests.log_folder import append, open_log
from tests.simulation.disk import SimDisk


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk()


@pytest.fixture
def log(disk: SimDisk) -> PartitionLog:
    return open_log(disk)


@pytest.fixture
def three_by_two(log: PartitionLog) -> tuple[PartitionLog, int]:
    """Two segments of three batches of two records: offsets 0-11; and a batch's size."""
    size = 0
    for _ in range(2):
        for _ in range(3):
            size = len(append(log, 2))
        log.roll()
    return log, size
