import argparse
import asyncio
import signal
import tempfile
from pathlib import Path

from rich.console import Console

from demo.story import Story

LINES_SHOWN = 5


async def run(story: Story) -> None:
    """A SIGTERM is taken like a Ctrl-C: everything is stopped in order."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    await story.run()


def last_words(folder: Path) -> list[str]:
    """The ends of the logs, which are about to be deleted."""
    words = []
    for log in (*folder.glob("*.log"), *folder.glob("node-*/*.log")):
        lines = log.read_text(errors="replace").splitlines()[-LINES_SHOWN:]
        words += [f"{log.name}: {line}" for line in lines]
    return words


def main() -> int:
    parser = argparse.ArgumentParser(prog="demo", description="The main job on real data, checked.")
    parser.add_argument("--keep", action="store_true", help="leave the servers up until Ctrl-C")
    keep = parser.parse_args().keep
    console = Console()
    with tempfile.TemporaryDirectory(prefix="streamlog-demo-") as folder:
        try:
            asyncio.run(run(Story(console, Path(folder), keep)))
        except (KeyboardInterrupt, asyncio.CancelledError):
            return 0 if keep else 130
        except Exception as error:
            console.print(f"[bold red]wrong:[/] {type(error).__name__}: {error}", highlight=False)
            for line in last_words(Path(folder)):
                console.print(line, markup=False, highlight=False)
            return 1
    console.print("[bold green]all right[/], and nothing is left running")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
