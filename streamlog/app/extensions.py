"""Whether the compiled extensions were built from the sources beside them.

An extension that was compiled from older sources loads without an error and behaves as it did then:
a checkout that was updated but not built again can lose a guarantee in silence. For example, a
parser from before batches were marked as NATS's writes batches in which a later leader finds no
message id, so retries are stored twice. ``setup.py`` therefore compiles a digest of its sources
into each extension.

``setup.py`` runs this file by itself: it imports the standard library only.
"""

import hashlib
from importlib import import_module
from pathlib import Path
from typing import Final

PACKAGE: Final = Path(__file__).parent.parent
EXTENSIONS: Final = (
    "log.compiled.log_end",
    "log.compiled.open_files",
    "partition.compiled.at_once",
    "record.compiled.codec",
    "record.compiled.columns",
    "record.compiled.keys",
    "record.compiled.message_run",
    "record.compiled.subjects",
    "wire.compiled.partial_frame",
    "wire.compiled.plain_fetch",
    "wire.compiled.single_produce",
    "delivery.pending_records",
    "ingest.admission.duplicate_window",
    "ingest.admission.batches.fast_run",
    "ingest.admission.publish_checks",
    "ingest.liftbridge.envelope_codec",
    "ingest.frames",
    "nats.router",
    "nats.connection",
    "nats.client_connection",
    "nats.leaf_connection",
    "nats.server_connection",
    "jetstream.consumers.ack_intake",
    "jetstream.consumers.run_delivery",
    "jetstream.snapshot.snapshot_codec",
)


def digest(extension: str, package: Path = PACKAGE, shared: bytes | None = None) -> int:
    """Of the extension's source and of all declarations, which extensions share: ``shared``, if
    they have been read. 60 bits fit into an integer constant of C. Raises FileNotFoundError where
    the source is not installed.
    """
    source = (package / f"{extension.replace('.', '/')}.pyx").read_bytes()
    shared = declarations_digest(package) if shared is None else shared
    return int(hashlib.sha256(source + shared).hexdigest()[:15], 16)


def declarations_digest(package: Path) -> bytes:
    return b"".join(hashlib.sha256(it.read_bytes()).digest() for it in declarations(package))


def declarations(package: Path = PACKAGE) -> list[Path]:
    """``.pxd`` files, and the ``.pxi`` files that are parts of extensions."""
    return sorted(package.glob("**/*.px[di]"))


def stale_extensions(package: Path = PACKAGE) -> list[str]:
    """Those compiled from other sources than ``package`` has; an installation without sources has
    nothing to compare. Raises ImportError where one is not compiled.
    """
    stale: list[str] = []
    shared = declarations_digest(package)  # to look for them once is a twentieth of the start
    for extension in EXTENSIONS:
        try:
            compiled = getattr(import_module(f"streamlog.{extension}"), "SOURCES", 0)
            if compiled != digest(extension, package, shared):
                stale.append(extension)
        except FileNotFoundError:
            continue
    return stale
