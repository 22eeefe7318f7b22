"""What sdist and wheel hold, and that streamlog installs where there is no C compiler."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from streamlog import __version__

pytest.importorskip("Cython")
ROOT = Path(__file__).parents[2]

PROGRAM = """
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import streamlog.ingest.acks.acks, streamlog.ingest.parser.frames, streamlog.record.columns
print(streamlog.__path__[0], len(caught), streamlog.ingest.parser.frames.FrameParser.__module__)
"""


def check_sdist(folder: Path) -> None:
    """A wheel is made of it alone; what an operator wants beside the program is there."""
    (sdist,) = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {
        str(path.relative_to(ROOT))
        for folder in ("streamlog", "config", "deploy")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in {".py", ".pyx", ".pxd", ".html", ".toml", ".yaml", ".service", ".json"}
    }
    assert wanted - names == set()
    assert {"CHANGELOG.md", "LICENSE", "streamlog/py.typed"} <= names
    assert not [name for name in names if name.endswith((".so", ".c"))]


@pytest.mark.slow
def test_without_a_compiler(tmp_path: Path) -> None:
    source = tmp_path / "source"
    ignore = shutil.ignore_patterns(".*", "build", "*.egg-info", "*.so", "*.c", "__pycache__")
    shutil.copytree(ROOT, source, ignore=ignore)
    command = ["-m", "build", "--no-isolation", "--outdir", tmp_path]
    environment = os.environ | {"CC": str(tmp_path / "no-such-compiler")}
    subprocess.run([sys.executable, *command], cwd=source, env=environment, check=True)
    check_sdist(tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.startswith(f"streamlog-{__version__}-")
    installed = tmp_path / "installed"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)
    names = {path.name for path in installed.rglob("*") if path.suffix in {".so", ".c", ".pxd"}}
    assert names == {path.name for path in (ROOT / "streamlog").rglob("*.pxd")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=installed,
        capture_output=True,
        text=True,
        check=True,
    )
    path, warnings, module = done.stdout.split()
    assert Path(path) == installed / "streamlog"
    assert int(warnings) == 1
    assert module == "streamlog.ingest.parser._frames_plain"
