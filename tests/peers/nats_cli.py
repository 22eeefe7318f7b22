"""The ``nats`` command line, and orbit.go's fast publisher, built from their Go modules into the cache of peers."""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from tests.peers.sources import NoSourcesError, cache

MODULE: Final = "github.com/nats-io/natscli"
VERSION: Final = "v0.4.0"
ORBIT: Final = "github.com/synadia-io/orbit.go/jetstreamext"
ORBIT_VERSION: Final = "v0.3.2"
FAST_PUBLISHER: Final = Path(__file__).parent / "go" / "fast_publisher.go"
BUILD_TIMEOUT_S: Final = 1_800.0


def nats_program() -> Path:
    """Raises NoSourcesError where it cannot be had."""
    return _program("nats", f"natscli-{VERSION}", MODULE, VERSION, f"{MODULE}/nats")


def fast_publisher() -> Path:
    """A program that publishes fast batches. Raises NoSourcesError where it cannot be had."""
    digest = hashlib.sha256(FAST_PUBLISHER.read_bytes()).hexdigest()[:8]
    name = f"orbit-{ORBIT_VERSION}-{digest}"
    return _program("fast_publisher", name, ORBIT, ORBIT_VERSION, str(FAST_PUBLISHER))


def _program(name: str, build: str, module: str, version: str, built_of: str) -> Path:
    program = cache() / build / name
    if not program.exists():
        folder = program.parent.with_name(f"{build}.part")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        _go(folder, "mod", "init", "peers")
        _go(folder, "get", f"{module}@{version}")
        _go(folder, "build", "-o", name, built_of)
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
