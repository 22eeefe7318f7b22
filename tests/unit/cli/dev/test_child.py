"""Children: started, stopped, killed if they will not, and never left behind."""

import signal
import sys
from pathlib import Path

from streamlog.cli.dev.child import Child

STUBBORN = "import signal, time; signal.signal(15, signal.SIG_IGN); print('no'); time.sleep(60)"


async def start(tmp_path: Path, program: str) -> Child:
    command = [sys.executable, "-u", "-c", program]
    return await Child.start("child", command, tmp_path / "log")


async def test_the_exit_code_and_the_last_words_are_kept(tmp_path: Path) -> None:
    child = await start(tmp_path, "print('one'); print('two\\n\\n'); raise SystemExit(3)")
    assert await child.wait() == 3
    assert child.exit_code == 3
    assert child.last_line() == "two"
    assert await child.stop(1)


async def test_it_stops_when_asked(tmp_path: Path) -> None:
    child = await start(tmp_path, "import time; time.sleep(60)")
    assert child.exit_code is None
    assert await child.stop(10)
    assert child.exit_code == -signal.SIGTERM


async def test_it_is_killed_if_it_does_not_stop(tmp_path: Path) -> None:
    child = await start(tmp_path, STUBBORN)
    with (tmp_path / "log").open() as log:
        while not log.readline():
            pass
    assert not await child.stop(0.05)
    assert child.exit_code == -signal.SIGKILL
