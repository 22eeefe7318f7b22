"""The program ``streamlog``, run as a person or a script runs it."""

import json
import os
import subprocess
import sys
from typing import Any

TIMEOUT_S = 30.0


class Cli:
    """Runs ``streamlog`` with the addresses of a cluster."""

    def __init__(self, dev: Any) -> None:
        self.kafka = dev.kafka
        self.environment = {**os.environ, "NATS_URL": dev.nats}

    def command(self, *arguments: str) -> list[str]:
        speaks = arguments[0] in {"read", "cluster"} or arguments[:2] == ("bench", "consume")
        asks = speaks and "--servers" not in arguments
        servers = ("--servers", self.kafka) if asks else ()
        return [sys.executable, "-m", "streamlog", *arguments, *servers]

    def run(self, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            self.command(*arguments),
            input=stdin,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
            env=self.environment,
        )

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
