"""The ``nats`` command line, and orbit.go's fast publisher, built from their Go modules into the cache of peers."""

import hashlib
from pathlib import Path
from typing import Final

from tests.peers.go_modules import program

MODULE: Final = "github.com/nats-io/natscli"
VERSION: Final = "v0.4.0"
ORBIT: Final = "github.com/synadia-io/orbit.go/jetstreamext"
ORBIT_VERSION: Final = "v0.3.2"
FAST_PUBLISHER: Final = Path(__file__).parent / "go" / "fast_publisher.go"


def nats_program() -> Path:
    """Raises NoSourcesError where it cannot be had."""
    return program("nats", f"natscli-{VERSION}", MODULE, VERSION, f"{MODULE}/nats")


def fast_publisher() -> Path:
    """A program that publishes fast batches. Raises NoSourcesError where it cannot be had."""
    digest = hashlib.sha256(FAST_PUBLISHER.read_bytes()).hexdigest()[:8]
    name = f"orbit-{ORBIT_VERSION}-{digest}"
    return program("fast_publisher", name, ORBIT, ORBIT_VERSION, str(FAST_PUBLISHER))
