"""What the sdist holds, and what a build says where there is no C compiler."""

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

WANTED = "install a C compiler and Python's headers"


def check_sdist(folder: Path) -> None:
    """A wheel is made of it alone; what an operator wants beside the program is there."""
    (sdist,) = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {
        str(path.relative_to(ROOT))
        for folder in ("streamlog", "config", "deploy")
        for path in (ROOT / folder).rglob("*")
        if path.suffix
        in {".py", ".pyi", ".pyx", ".pxd", ".html", ".toml", ".yaml", ".service", ".json"}
    }
    assert wanted - names == set()
    assert {"CHANGELOG.md", "LICENSE", "streamlog/py.typed"} <= names
    assert not [name for name in names if name.endswith((".so", ".c"))]


def build(source: Path, into: Path, kind: str, compiler: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "build", "--no-isolation", f"--{kind}", "--outdir", str(into)]
    environment = os.environ | {"CC": str(compiler)}
    return subprocess.run(
        command, cwd=source, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_without_a_compiler_a_build_says_what_to_install(tmp_path: Path) -> None:
    source, missing = tmp_path / "source", tmp_path / "no-such-compiler"
    ignore = shutil.ignore_patterns(".*", "build", "*.egg-info", "*.so", "*.c", "__pycache__")
    shutil.copytree(ROOT, source, ignore=ignore)
    made = build(source, tmp_path, "sdist", missing)
    assert made.returncode == 0, made.stderr
    check_sdist(tmp_path)
    refused = build(source, tmp_path, "wheel", missing)
    assert refused.returncode != 0
    said = [line for line in (refused.stdout + refused.stderr).splitlines() if WANTED in line]
    assert len(said) == 1 and said[0].startswith("error: streamlog has compiled parts")
    assert "Traceback" not in refused.stderr
    assert not list(tmp_path.glob("*.whl"))
