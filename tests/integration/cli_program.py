"""The program ``streamlog``: most commands inside of the tests' process, a few as a process."""

import json
import os
import subprocess
import sys
from typing import Any, Final

from tests.in_process import streamlog

TIMEOUT_S: Final = 30.0


class Cli:
    """Runs ``streamlog`` with the addresses of a cluster."""

    def __init__(self, dev: Any) -> None:
        self.kafka = dev.kafka
        self.environment = {**os.environ, "NATS_URL": dev.nats}

    def command(self, *arguments: str) -> list[str]:
        """For a process of its own: one that is stopped, or whose pipe breaks."""
        return [sys.executable, "-m", "streamlog", *self._words(*arguments)]

    def _words(self, *arguments: str) -> list[str]:
        speaks = arguments[0] in {"consume", "cluster", "stream", "group", "top"} or arguments[
            :2
        ] == (
            "bench",
            "consume",
        )
        asks = speaks and "--bootstrap-server" not in arguments
        return [*arguments, *(("--bootstrap-server", self.kafka) if asks else ())]

    def run(self, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """Inside of this process."""
        words = self._words(*arguments)
        return streamlog(words, stdin=stdin, environment=self.environment)

    def ok(self, *arguments: str, stdin: bytes = b"") -> str:
        done = self.run(*arguments, stdin=stdin)
        assert (done.returncode, done.stderr) == (0, b""), done
        return done.stdout.decode()

    def json(self, *arguments: str) -> Any:
        return json.loads(self.ok(*arguments, "--json"))

    def refused(self, *arguments: str, code: int = 1) -> str:
        done = self.run(*arguments)
        said = done.stderr.decode()
        assert done.returncode == code, said
        assert len(said.splitlines()) == 1
        return said
