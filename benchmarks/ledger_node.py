"""An ordering node beside the servers of a run: one channel over a stream of its own."""

import shutil
from pathlib import Path
from typing import Final

from benchmarks.side import Streamlog, delete_stream
from tools.nodes.ordering_process import OrderingProcess
from tools.nodes.server_process import ServerEndedError

CHANNEL: Final = "bench-ledger"
NODE: Final = "bench"
NEVER_MS: Final = 3_600_000
"""A batch time-out that cuts nothing while a run lasts."""


class LedgerNode:
    """``streamlog ledger serve``, started; ``stop`` removes its folder and its stream."""

    def __init__(
        self, directory: Path, side: Streamlog, *, batch_size: int, timeout_ms: int = NEVER_MS
    ) -> None:
        self.side = side
        self.directory = directory
        self._process = OrderingProcess(
            NODE, directory, CHANNEL,
            "--batch-size", str(batch_size), "--batch-timeout-ms", str(timeout_ms),
            servers=lambda: side.kafka, nats=f"nats://{side.nats}",
        )  # fmt: skip
        self.nats = side.nats
        try:
            self._process.start()
        except (TimeoutError, ServerEndedError):  # it is made again, in the same folder
            self._process.end()
            shutil.rmtree(directory, ignore_errors=True)
            raise
        self.pid = self._process.pid
        self.pids = (*side.pids, self.pid)

    def stop(self) -> None:
        """The stream goes too, so that the next run begins anew."""
        self._process.end()
        delete_stream(self.side, CHANNEL)
        shutil.rmtree(self.directory, ignore_errors=True)
