"""The judge of histories: a program in Go around porcupine, a published checker of linearizability."""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from tests.peers.sources import NoSourcesError, cache

SOURCE: Final = Path(__file__).with_name("porcupine")
BUILD_TIMEOUT_S: Final = 300.0
TIMEOUT_S: Final = 60.0
"""For each object, after which the judge gives up."""
LINEARIZABLE: Final = 0
VIOLATED: Final = 1
UNDECIDED: Final = 3


class NotLinearizable(AssertionError):
    """No order of the operations explains what the clients saw."""


class Undecided(AssertionError):
    """The judge found no answer in its time."""


def judge_program() -> Path:
    """Built once for each state of its source. Raises NoSourcesError without Go or its module proxy."""
    files = sorted(path for path in SOURCE.iterdir() if path.suffix in {".go", ".mod", ".sum"})
    mark = hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()[:12]
    program = cache() / f"judge-{mark}"
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        partial = program.with_name(f"{program.name}.{os.getpid()}")
        command = ["go", "build", "-mod=readonly", "-buildvcs=false", "-o", str(partial), "."]
        try:
            subprocess.run(
                command,
                cwd=SOURCE,
                capture_output=True,
                text=True,
                check=True,
                timeout=BUILD_TIMEOUT_S,
            )
        except subprocess.CalledProcessError as error:
            raise NoSourcesError(f"go build: {error.stderr.strip()[-300:]}") from None
        except (OSError, subprocess.TimeoutExpired) as error:
            raise NoSourcesError(f"go build: {error}") from None
        partial.rename(program)
    return program


def why_missing() -> str:
    """Why there can be no judge here; empty if there can."""
    if shutil.which("go") is None:
        return "Go is not installed"
    try:
        judge_program()
    except NoSourcesError as error:
        return str(error)
    return ""


def judge(history: Path, *, late_s: float = 0.0, timeout_s: float = TIMEOUT_S) -> str:
    """What was checked. Raises NotLinearizable, which names the operation, and leaves porcupine's picture beside it.

    ``late_s``: reads may tell what was so that long before.
    """
    options = {
        "-late": f"{late_s * 1e9:.0f}ns",
        "-timeout": f"{timeout_s}s",
        "-html": str(history.parent),
    }
    command = [str(judge_program()), *(word for pair in options.items() for word in pair)]
    done = subprocess.run([*command, str(history)], capture_output=True, text=True, check=False)
    said = (done.stdout + done.stderr).strip()
    if done.returncode == LINEARIZABLE:
        return said
    kinds = {VIOLATED: NotLinearizable, UNDECIDED: Undecided}
    raise kinds.get(done.returncode, ValueError)(f"{said}\nhistory: {history}")
