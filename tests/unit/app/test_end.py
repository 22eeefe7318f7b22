"""The end of a node's process."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import asyncio, atexit, logging, sys
from pathlib import Path
from streamlog.app import run
from streamlog.config import load_node

class Node:
    def __init__(self, *_, **__):
        self.itself, self.stopping = self, asyncio.Event()

    def __del__(self):
        print("collected")

    async def run(self):
        logging.getLogger("streamlog").info("stopped")
        return sys.argv[2] == "clean"

atexit.register(print, "at exit")
run.Node = Node
run.run_node(load_node(Path(sys.argv[1]), None))
"""


@pytest.mark.parametrize(("how", "code"), [("clean", 0), ("unclean", 1)])
def test_its_memory_is_not_looked_through(tmp_path: Path, how: str, code: int) -> None:
    """With very many partitions that takes seconds. Handlers run, and what is logged is written."""
    config = tmp_path / "node.toml"
    config.write_text(f'[node]\nid = 1\ndata_dir = "{tmp_path / "data"}"\n')
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(config), how],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert ended.returncode == code, ended.stderr
    assert ended.stdout.split("\n") == ["at exit", ""]
    assert "stopped" in ended.stderr
