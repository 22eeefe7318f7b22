"""An ordering node beside the servers of a run: one channel over a stream of its own."""

import http.client
import shutil
import subprocess
import time
from pathlib import Path
from typing import Final

from benchmarks.connection import BenchmarkError
from benchmarks.ports import free_port
from benchmarks.processes import binary, start, stop
from benchmarks.side import Streamlog, delete_stream

CHANNEL: Final = "bench-ledger"
NODE: Final = "bench"
READY_TIMEOUT_S: Final = 60.0
NEVER_MS: Final = 3_600_000
"""A batch time-out that cuts nothing while a run lasts."""


class LedgerNode:
    """``streamlog ledger serve``, started; ``stop`` removes its folder and its stream."""

    def __init__(
        self, directory: Path, side: Streamlog, *, batch_size: int, timeout_ms: int = NEVER_MS
    ) -> None:
        self.side = side
        self.directory = directory
        self._http = free_port()
        directory.mkdir(parents=True)
        command = [binary("streamlog"), "ledger", "serve", "--channel", CHANNEL, "--node", NODE]
        command += ["--dir", str(directory / "blocks"), "--bootstrap-server", side.kafka]
        command += ["--nats", f"nats://{side.nats}", "--http-port", str(self._http)]
        command += ["--batch-size", str(batch_size), "--batch-timeout-ms", str(timeout_ms)]
        self._process: subprocess.Popen[bytes] = start(command, directory / "log")
        self.pid = self._process.pid
        self.nats = side.nats
        self.pids = (*side.pids, self.pid)
        try:
            self._wait_ready()
        except BenchmarkError:  # it is made again, in the same folder
            stop(self._process)
            shutil.rmtree(directory, ignore_errors=True)
            raise

    def stop(self) -> None:
        """The stream goes too, so that the next run begins anew."""
        stop(self._process)
        delete_stream(self.side, CHANNEL)
        shutil.rmtree(self.directory, ignore_errors=True)

    def _wait_ready(self) -> None:
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not self._is_ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                log = (self.directory / "log").read_text(errors="replace")
                raise BenchmarkError(f"the ordering node is not ready:\n{log[-2000:]}")
            time.sleep(0.02)

    def _is_ready(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self._http, timeout=5)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()
