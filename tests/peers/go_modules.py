"""Programs and tests of Go modules, built into the cache of peers; what each test says, and how it ends."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.peers.sources import NoSourcesError, cache

BUILD_TIMEOUT_S: Final = 1_800.0
PROGRAM: Final = "tests"
ADDING: Final = "-mod=mod -buildvcs=false"
"""Go writes into its go.mod and go.sum what they lack."""

_BEGIN = re.compile(r"=== (?:RUN|CONT|NAME)\s+(\w+)(?:/.*)?$")
_END = re.compile(r"--- (PASS|FAIL|SKIP): (\w+) ")
_NAME = re.compile(r"^func (Test\w+)\(", re.MULTILINE)


def program(name: str, build: str, module: str, version: str, built_of: str) -> Path:
    """``name`` in the folder ``build`` of the cache, made of a package or file that needs the module. Raises
    NoSourcesError where it cannot be had.
    """
    made = cache() / build / name
    if not made.exists():
        folder = made.parent.with_name(f"{build}.part")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        _go(folder, "mod", "init", "peers")
        _go(folder, "get", f"{module}@{version}", flags=ADDING)
        _go(folder, "build", "-o", name, built_of, flags=ADDING)
        folder.rename(made.parent)
    return made


def module(path: str, version: str) -> Path:
    """A copy of the module, by Go's proxy: its own folder is not to be written to. Raises NoSourcesError."""
    folder = cache() / f"{path.rpartition('/')[2]}-{version}"
    if not folder.exists():
        partial = folder.with_suffix(".part")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        told = _go(partial, "mod", "download", "-json", f"{path}@{version}")
        shutil.rmtree(partial)
        shutil.copytree(json.loads(told)["Dir"], partial, copy_function=shutil.copyfile)
        partial.rename(folder)
    return folder


def build(folder: Path, *options: str) -> None:
    """``tests`` in the folder of the package. Raises NoSourcesError where it cannot be had."""
    _go(folder, "test", *options, "-vet=off", "-c", "-o", PROGRAM, ".")


def _go(folder: Path, *arguments: str, flags: str = "-buildvcs=false") -> str:
    environment = {**os.environ, "GOFLAGS": flags}
    try:
        done = subprocess.run(
            ["go", *arguments],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=BUILD_TIMEOUT_S,
        )
    except subprocess.CalledProcessError as error:
        raise NoSourcesError(f"go {arguments[0]}: {error.stderr.strip()[-300:]}") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoSourcesError(f"go {arguments[0]}: {error}") from None
    return done.stdout


def names_in(folder: Path, files: Sequence[str]) -> list[str]:
    texts = [(folder / file).read_text() for file in files]
    return [name for text in texts for name in _NAME.findall(text) if name != "TestMain"]


def run(
    folder: Path, names: Sequence[str], environment: Mapping[str, str], timeout_s: float
) -> str:
    """What the tests of these names say. The program ends them when the time is over."""
    only = f"^({'|'.join(names)})$"
    done = subprocess.run(
        [f"./{PROGRAM}", "-test.v", f"-test.timeout={timeout_s:.0f}s", f"-test.run={only}"],
        cwd=folder,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
        timeout=2 * timeout_s,
    )
    return done.stdout


def outcomes(said: str) -> dict[str, str]:
    """By name; of a test that was run again, the last."""
    return {match[2]: match[1] for line in said.splitlines() if (match := _END.match(line))}


def said_by(said: str) -> dict[str, str]:
    """What each test printed, by name."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in said.splitlines():
        if match := _BEGIN.match(line):
            lines = found.setdefault(match[1], [])
        lines.append(line)
    return {name: "\n".join(of_test) for name, of_test in found.items()}
