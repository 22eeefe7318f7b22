"""What a wheel holds, and that streamlog installs where there is no C compiler."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("Cython")
ROOT = Path(__file__).parents[2]

PROGRAM = """
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import streamlog.ingest.acks, streamlog.ingest.frames, streamlog.record.columns
print(streamlog.__path__[0], len(caught), streamlog.ingest.frames.FrameParser.__module__)
"""


@pytest.mark.slow
def test_without_a_compiler(tmp_path: Path) -> None:
    source = tmp_path / "source"
    ignore = shutil.ignore_patterns(".*", "build", "*.egg-info", "*.so", "*.c", "__pycache__")
    shutil.copytree(ROOT, source, ignore=ignore)
    command = ["-m", "pip", "wheel", "-q", "--no-build-isolation", "--no-deps", "-w", tmp_path, "."]
    environment = os.environ | {"CC": str(tmp_path / "no-such-compiler")}
    subprocess.run([sys.executable, *command], cwd=source, env=environment, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    installed = tmp_path / "installed"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)
    names = {path.name for path in installed.rglob("*") if path.suffix in {".so", ".c", ".pxd"}}
    assert names == {
        "_codec.pxd",
        "_varint.pxd",
        "_spans.pxd",
        "_buffer.pxd",
        "_inflow.pxd",
        "_spread.pxd",
    }
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
    assert module == "streamlog.ingest._frames_plain"
