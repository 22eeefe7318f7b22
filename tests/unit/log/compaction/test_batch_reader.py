"""Those who read a compacted log by other ways than the log's own."""

import subprocess
import sys
from pathlib import Path

from streamlog.log.compaction.blocking import clean
from streamlog.log.compaction.cleaner import Terms
from streamlog.log.log import PartitionLog
from streamlog.log.storage.disk import OsDisk
from streamlog.log.storage.file_pool import FilePool
from streamlog.log.tools.dump import DumpedBatch, dump
from streamlog.record import columns
from tests.compacted_log import COMPACTED, sealed
from tests.log_folder import read_batches
from tests.oracles import columns as columns_oracle


def compacted(folder: Path) -> bytes:
    """Forty keys, some deleted; all batches as they are then."""
    disk, pool = OsDisk(), FilePool(OsDisk(), 16)
    log = PartitionLog.open(folder, COMPACTED, disk=disk, files=pool)
    for number in range(300):
        value = None if number % 9 == 0 else b"%d" % number
        log.append(sealed(log.log_end_offset, [(b"k%d" % (number % 40), value)]), 1_000)
    log.roll()
    ticket = log.begin_sync()
    assert ticket is not None
    ticket.run()
    log.finish_sync(ticket)
    clean(log, Terms(5_000), upper_offset=300, disk=disk, pool=pool)
    data = b"".join(batch for _, batch in read_batches(log))
    log.close()
    return data


def test_columns(tmp_path: Path) -> None:
    data = compacted(tmp_path / "p")
    for decoder_type in (columns_oracle.ColumnDecoder, columns.ColumnDecoder):
        decoder = decoder_type({"offset", "value"}, start_offset=0, end_offset=300)
        decoder.feed(data)
        decoder.decode()
        rows, _ = decoder.take()
        assert rows == 40
        assert decoder.finished
        assert decoder.next_offset == 300


def test_dump(tmp_path: Path) -> None:
    compacted(tmp_path / "p")
    found = [it for it in dump(tmp_path / "p") if isinstance(it, DumpedBatch)]
    assert found[0].header.record_count == 0
    assert sum(it.header.record_count for it in found) == 40
    told = subprocess.run(
        [sys.executable, "-m", "streamlog", "log", "dump", str(tmp_path / "p"), "--records"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    verified = subprocess.run(
        [sys.executable, "-m", "streamlog", "log", "verify", str(tmp_path)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert verified.returncode == 0, verified.stdout
