"""The program ``streamlog``: most commands inside of the tests' process, a few as a process."""

import io
import json
import os
import subprocess
import sys
from typing import Any, Final

import pytest

from streamlog.cli.program import main

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
        speaks = arguments[0] in {"read", "cluster"} or arguments[:2] == ("bench", "consume")
        asks = speaks and "--servers" not in arguments
        return [*arguments, *(("--servers", self.kafka) if asks else ())]

    def run(self, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """In this process: its start would take longer than most commands."""
        words = ["streamlog", *self._words(*arguments)]
        source = io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8")
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
        code: Any = 0
        umask = os.umask(0o077)
        try:
            with pytest.MonkeyPatch.context() as patch:
                for name, value in self.environment.items():
                    patch.setenv(name, value)
                patch.setattr(sys, "argv", words)
                patch.setattr(sys, "stdin", source)
                patch.setattr(sys, "stdout", out)
                patch.setattr(sys, "stderr", err)
                try:
                    main()
                except SystemExit as ended:
                    code = ended.code
        finally:
            os.umask(umask)
        for stream in (out, err):
            stream.flush()
        printed, said = (stream.buffer.getvalue() for stream in (out, err))
        return subprocess.CompletedProcess(words, int(code or 0), printed, said)

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
