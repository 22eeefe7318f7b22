"""``streamlog ledger serve`` as a process, and what it keeps."""

import asyncio
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from streamlog.errors import StreamlogError
from streamlog.ledger.api import LedgerClient
from tests.server_process import ServerProcess, program, wait_until

_ASKER = ThreadPoolExecutor(1, "asks ledgers")


class LedgerProcess(ServerProcess):
    """The same folder at each start; ``options`` as the command has them."""

    def __init__(
        self, directory: Path, name: str, *, servers: str, nats: str, channel: str, **options: Any
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.name = name
        self.channel = channel
        self.nats = nats
        self.directory = directory / "ledger"
        more = [f"--{key.replace('_', '-')}={value}" for key, value in options.items()]
        command = [
            program("streamlog"), "ledger", "serve", "--channel", channel, "--node", name,
            "--dir", str(self.directory), "--bootstrap-server", servers, "--nats-server", nats, *more,
        ]  # fmt: skip
        super().__init__(command, directory / "ledger.log")

    def serve_all_of_its_folder(self) -> None:
        """At the next start: without naming a channel, or anything of it."""
        at = self.command.index("--channel")
        del self.command[at : at + 2]
        self.command = [word for word in self.command if not word.startswith("--batch")]

    def start(self) -> None:
        self.spawn()
        self.wait_open()

    def wait_open(self) -> None:
        """Until it answers; it may yet order nothing."""

        def is_open() -> bool:
            assert self.is_running(), f"it ended:\n{self.log_text()[-4000:]}"
            return self.info() is not None

        wait_until(is_open, f"ledger {self.name} is not open")

    def info(self) -> dict[str, Any] | None:
        """None while it does not answer. Also from within an event loop, which waits."""
        return _ASKER.submit(asyncio.run, self._info()).result()

    async def _info(self) -> dict[str, Any] | None:
        try:
            async with LedgerClient(self.nats) as client:
                return await client.info(self.channel, node=self.name)
        except StreamlogError:
            return None

    def verify(self) -> dict[str, Any]:
        done = ledger("verify", str(self.directory), "--channel", self.channel, "--json")
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout))

    def blocks(self) -> dict[str, bytes]:
        """The files of the chain."""
        folder = self.directory / self.channel / "blocks"
        return {file.name: file.read_bytes() for file in sorted(folder.glob("*.log"))}


def ledger(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "streamlog", "ledger", *arguments],
        input=stdin,
        capture_output=True,
        timeout=60,
        check=False,
    )
