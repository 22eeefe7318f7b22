"""What the Dockerfile does to build, done here: its commands, one by one, in folders of the test's.

There may be no Docker where the tests run, and no registry with base images; the locked packages,
how they are installed, and what comes out are the same.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from streamlog import __version__
from tools.nodes.node_process import NodeProcess
from tools.nodes.server_process import NatsServer

ROOT: Final = Path(__file__).parents[2]
FOLDERS: Final = ("/opt/streamlog", "/locks", "/build", "/wheels", "/src")


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """Of the stage that builds."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    stage = joined.split("\nFROM ")[1]
    for line in stage.splitlines()[1:]:
        if line.strip():
            word, _, rest = line.partition(" ")
            yield word, rest


class Builder:
    """Carries them out below a folder, but for what Debian's packages are needed for."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self._environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        self._where = place

    def follow(self, text: str) -> None:
        for word, rest in instructions(text):
            if word == "RUN" and "apt-get" not in rest:
                self._run(self._here(rest).replace("python -m venv", f"{sys.executable} -m venv"))
            elif word == "WORKDIR":
                self._where = Path(self._here(rest))
                self._where.mkdir()
            elif word == "ARG":
                name, value = rest.split("=", 1)
                self._environment[name] = value
            elif word == "COPY":
                self._copy(*self._here(rest).split())

    def _here(self, text: str) -> str:
        return re.sub(r"(?<![\w.])(" + "|".join(FOLDERS) + r")\b", rf"{self.place}\1", text)

    def _copy(self, *words: str) -> None:
        *sources, target = words
        to = self._where / target
        for source in sources:
            if (ROOT / source).is_dir():
                ignored = shutil.ignore_patterns("__pycache__", "*.so", "*.c", "*.egg-info")
                shutil.copytree(ROOT / source, to, ignore=ignored)
            else:
                to.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / source, to)

    def _run(self, command: str) -> None:
        done = subprocess.run(
            ["/bin/sh", "-c", command],
            cwd=self._where,
            env=self._environment,
            check=False,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"


@pytest.mark.slow
def test_the_image_is_built_of_locked_packages_and_does_its_work(
    tmp_path: Path, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    if sys.platform != "linux":
        pytest.skip("the image is Linux's")
    text = (ROOT / "Dockerfile").read_text()
    (tmp_path / "opt").mkdir()
    Builder(tmp_path).follow(text)
    program = tmp_path / "opt" / "streamlog" / "bin" / "streamlog"
    monkeypatch.delenv("PYTHONPATH", raising=False)
    said = subprocess.run([program, "--version"], check=True, capture_output=True, text=True)
    assert said.stdout == f"streamlog {__version__}\n"
    node = NodeProcess.alone(tmp_path / "node", nats_server.url)
    node.command[0] = str(program)
    node.start()
    try:
        (probe,) = re.findall(r"^HEALTHCHECK .*CMD (\[.+\])$", text, re.MULTILINE)
        _, *words = json.loads(probe)
        subprocess.run([program, *words, "--config", str(node.config)], check=True)
        assert node.stop() == 0
    finally:
        node.kill()
