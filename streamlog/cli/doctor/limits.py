"""What the system lets one process have, and who may read the files with secrets."""

import contextlib
import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from streamlog.condition import CRITICAL, WARNING, Condition
from streamlog.findings import Finding
from streamlog.metadata.nodes.data_dir import FOLDER_IS_OPEN

if TYPE_CHECKING:
    from streamlog.config import Settings

AREA: Final = "limits"
FILES_MIN: Final = 4_096
OTHERS_MAY: Final = 0o077

FEW_OPEN_FILES: Final = Condition(
    "SL-0815",
    "the limit of open files is low",
    "LimitNOFILE=65536 in the unit, or ulimit -n 65536",
    meaning="Each partition and each connection needs open files. Where the system gives no more, "
    "partitions go offline and connections are refused.",
)
FILE_MISSING: Final = Condition(
    "SL-0816",
    "a file that the settings name is not there",
    "correct the path, or who may look into its folder",
    meaning="The node does not start without it.",
    severity=CRITICAL,
)
FILE_NOT_READABLE: Final = Condition(
    "SL-0817",
    "a file that the settings name cannot be read",
    "chown {path} to the user that runs the node",
    meaning="The node does not start without it.",
    severity=CRITICAL,
)
SECRET_READABLE: Final = Condition(
    "SL-0818",
    "others may read a secret",
    "chmod 600 {path}",
    meaning="Other accounts of the machine can read a file with a key or a password.",
)


def examine(settings: "Settings", config: Path | None) -> Iterator[Finding]:
    yield _files(settings)
    yield from _folders(settings)
    for key, path in _secret_files(settings, config):
        yield from _readable_by_others(key, path)


def _files(settings: "Settings") -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    measured = {"open_files_soft": float(soft), "open_files_hard": float(hard)}
    folder = settings.node.data_dir / "streams"
    partitions = sum(1 for _ in folder.glob("*/*")) if folder.is_dir() else 0
    wanted = max(FILES_MIN, 2 * partitions + settings.kafka.connections_max)
    said = f"a process may have {soft} files open; {partitions} partitions are kept here"
    if 0 <= soft < FILES_MIN:
        return Finding.of(FEW_OPEN_FILES, AREA, said, severity=CRITICAL, measured=measured)
    if 0 <= soft < wanted:
        said += f", and {settings.kafka.connections_max} connections are allowed for"
        return Finding.of(FEW_OPEN_FILES, AREA, said, severity=WARNING, measured=measured)
    return Finding(AREA, "ok", said, "", measured)


def _folders(settings: "Settings") -> Iterator[Finding]:
    """Where the node has its files: for its account alone."""
    folder = settings.node.data_dir
    for path in (folder, folder / "metadata", folder / "streams"):
        with contextlib.suppress(OSError):  # a first start makes it
            mode = path.stat().st_mode
            if mode & OTHERS_MAY:
                said = f"others may look into {path} (mode {mode & 0o777:o})"
                remedy = f"restart the node, which tightens it, or chmod -R go= {folder}"
                yield Finding.of(FOLDER_IS_OPEN, AREA, said, remedy)
                return


def _secret_files(settings: "Settings", config: Path | None) -> Iterator[tuple[str, Path]]:
    nats, tls, http, sasl = settings.nats, settings.tls, settings.http, settings.sasl
    for key, path in (
        ("tls.key", tls.key),
        ("tls.key_password_file", tls.key_password_file),
        ("http.tls_key", http.tls_key),
        ("http.token_file", http.token_file),
        ("nats_listen.token_file", settings.nats_listen.token_file),
        ("sasl.node_password_file", sasl.node_password_file),
        ("nats.nkey_seed", nats.nkey_seed),
        ("nats.credentials", nats.credentials),
        ("nats.tls_key", nats.tls_key),
    ):
        if path is not None:
            yield key, path
    for name, where in settings.encryption.keys.items():
        kind, _, place = where.partition(":")
        if kind == "file":
            yield f"encryption.keys.{name}", Path(place)
    if config is not None and (nats.password or nats.token):
        yield "the configuration, which has a password or token", config


def _readable_by_others(key: str, path: Path) -> Iterator[Finding]:
    try:
        mode = path.stat().st_mode
    except OSError as error:
        yield Finding.of(FILE_MISSING, AREA, f"{key}: {path}: {error.strerror}")
        return
    if not os.access(path, os.R_OK):
        said = f"{key}: {path} cannot be read by this user"
        yield Finding.of(FILE_NOT_READABLE, AREA, said, path=path)
    if mode & OTHERS_MAY:
        said = f"{key}: others may read {path} (mode {mode & 0o777:o})"
        yield Finding.of(SECRET_READABLE, AREA, said, path=path)
