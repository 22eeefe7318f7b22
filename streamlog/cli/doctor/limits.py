"""What the system lets one process have, and who may read the files with secrets."""

import contextlib
import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from streamlog.findings import Finding

if TYPE_CHECKING:
    from streamlog.config import Settings

AREA: Final = "limits"
FILES_WANTED: Final = 65_536
FILES_MIN: Final = 4_096
OTHERS_MAY: Final = 0o077


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
    remedy = f"LimitNOFILE={FILES_WANTED} in the unit, or ulimit -n {FILES_WANTED}"
    if 0 <= soft < FILES_MIN:
        return Finding(AREA, "critical", said, remedy, measured)
    if 0 <= soft < wanted:
        more = f", and {settings.kafka.connections_max} connections are allowed for"
        return Finding(AREA, "warning", said + more, remedy, measured)
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
                yield Finding(AREA, "warning", said, remedy)
                return


def _secret_files(settings: "Settings", config: Path | None) -> Iterator[tuple[str, Path]]:
    nats, tls, http, sasl = settings.nats, settings.tls, settings.http, settings.sasl
    for key, path in (
        ("tls.key", tls.key),
        ("tls.key_password_file", tls.key_password_file),
        ("http.tls_key", http.tls_key),
        ("http.token_file", http.token_file),
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
        remedy = "correct the path, or who may look into its folder"
        yield Finding(AREA, "critical", f"{key}: {path}: {error.strerror}", remedy)
        return
    if not os.access(path, os.R_OK):
        remedy = f"chown {path} to the user that runs the node"
        yield Finding(AREA, "critical", f"{key}: {path} cannot be read by this user", remedy)
    if mode & OTHERS_MAY:
        said = f"{key}: others may read {path} (mode {mode & 0o777:o})"
        yield Finding(AREA, "warning", said, f"chmod 600 {path}")
