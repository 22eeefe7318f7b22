"""The ``nats`` command line, built from its Go module into the cache of peers."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from tests.peers.sources import NoSourcesError, cache

MODULE: Final = "github.com/nats-io/natscli"
VERSION: Final = "v0.4.0"
BUILD_TIMEOUT_S: Final = 1_800.0


def nats_program() -> Path:
    """Raises NoSourcesError where it cannot be had."""
    program = cache() / f"natscli-{VERSION}" / "nats"
    if not program.exists():
        folder = program.parent.with_suffix(".part")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        _go(folder, "mod", "init", "peers")
        _go(folder, "get", f"{MODULE}@{VERSION}")
        _go(folder, "build", "-o", "nats", f"{MODULE}/nats")
        folder.rename(program.parent)
    return program


def _go(folder: Path, *arguments: str) -> None:
    environment = {**os.environ, "GOFLAGS": "-mod=mod -buildvcs=false"}
    try:
        subprocess.run(
            ["go", *arguments],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=BUILD_TIMEOUT_S,
        )
    except subprocess.CalledProcessError as error:
        raise NoSourcesError(f"go {arguments[0]}: {error.stderr.strip()[-200:]}") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoSourcesError(f"go {arguments[0]}: {error}") from None
