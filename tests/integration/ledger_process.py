"""``streamlog ledger serve`` as a process, and what it keeps."""

import asyncio
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from streamlog.errors import StreamlogError
from streamlog.ledger.api import LedgerClient
from tools.nodes.ordering_process import OrderingProcess
from tools.nodes.server_process import wait_until

_ASKER = ThreadPoolExecutor(1, "asks ledgers")


class LedgerProcess(OrderingProcess):
    """It is asked by way of NATS; ``options`` as the command has them."""

    def __init__(
        self, directory: Path, name: str, *, servers: str, nats: str, channel: str, **options: Any
    ) -> None:
        more = [f"--{key.replace('_', '-')}={value}" for key, value in options.items()]
        super().__init__(name, directory, channel, *more, servers=lambda: servers, nats=nats)
        self._nats = nats

    def serve_all_of_its_folder(self) -> None:
        """At the next start: without naming a channel, or anything of it."""
        self.is_told_channel = False
        self._options = tuple(it for it in self._options if not it.startswith("--batch"))

    def wait_ready(self) -> None:
        """Until it answers; it may yet order nothing."""

        def is_open() -> bool:
            self.check_running()
            return self.info() is not None

        wait_until(is_open, f"ledger {self.name} is not open")

    def info(self) -> dict[str, Any] | None:
        """None while it does not answer. Also from within an event loop, which waits."""
        return _ASKER.submit(asyncio.run, self._info()).result()

    async def _info(self) -> dict[str, Any] | None:
        try:
            async with LedgerClient(self._nats) as client:
                return await client.info(self.channel, node=self.name)
        except StreamlogError:
            return None


def ledger(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "streamlog", "ledger", *arguments],
        input=stdin,
        capture_output=True,
        timeout=60,
        check=False,
    )
