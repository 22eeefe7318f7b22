"""A child process that cannot outlive its parent."""

import asyncio
import contextlib
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from streamlog.cli.dev.die_with_parent import leashed

TAIL_BYTES: Final = 4096


class Child:
    """Started by ``start``; what it prints goes to ``log``."""

    def __init__(
        self, name: str, process: asyncio.subprocess.Process, log: Path, restart: str = ""
    ) -> None:
        self.name = name
        self.log = log
        self.restart = restart
        """The command that starts it again by hand, where there is one."""
        self._process = process

    @classmethod
    async def start(
        cls,
        name: str,
        command: Sequence[str],
        log: Path,
        *,
        env: Mapping[str, str] | None = None,
        restart: str = "",
    ) -> "Child":
        """In a session of its own, so that a Ctrl-C in the terminal reaches the parent alone."""
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                *leashed(command),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=env,
                start_new_session=True,
            )
        return cls(name, process, log, restart)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative: the signal that killed it."""
        return self._process.returncode

    async def wait(self) -> int:
        return await self._process.wait()

    async def stop(self, timeout_s: float) -> bool:
        """Ask, wait, kill. False: it had to be killed."""
        if self.exit_code is not None:
            return True
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(timeout_s):
                await self._process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
            return False
        return True

    def last_line(self) -> str:
        """The end of what it said; of a traceback, the error."""
        with self.log.open("rb") as log:
            log.seek(max(0, self.log.stat().st_size - TAIL_BYTES))
            lines = log.read().decode(errors="replace").split("\n")
        return next((text for line in reversed(lines) if (text := line.strip(" +-|"))), "")
