"""Brings a client's packages into the cache, and says how its program is run with them.

``install`` raises Missing where the packages, or a tool to get or build them with, cannot be had.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple

from compatibility.outcome import Missing, one_line
from compatibility.peer import CLIENTS, Peer

INSTALL_TIMEOUT_S: Final = 900.0
DONE: Final = "installed"


class Installed(NamedTuple):
    """A program that is ready to run."""

    command: tuple[str, ...]
    environment: Mapping[str, str]


def cache_folder() -> Path:
    """Outside the repository, and kept for the next time."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "streamlog-compatibility"


def install(peer: Peer, cache: Path) -> Installed:
    """The row's program, with its packages from the cache or, at first, from their registry."""
    folder = cache / f"{peer.name}-{_fingerprint(peer)}"
    bring, command = REGISTRIES[peer.registry]
    if not (folder / DONE).exists():
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(peer.folder, folder, ignore=shutil.ignore_patterns(*peer.without))
        bring(peer, folder)
        (folder / DONE).touch()
    return command(folder)


def present(peer: Peer) -> Installed | None:
    """The row's program with the packages of this very environment, if it has them."""
    if peer.registry != "pip" or any("=" in package for package in peer.packages):
        return None
    names = (package.partition("[")[0].replace("-", "_") for package in peer.packages)
    modules = {"kafka_python": "kafka"}
    if any(importlib.util.find_spec(modules.get(name, name)) is None for name in names):
        return None
    return Installed((sys.executable, str(peer.folder / "client.py")), _PYTHON)


def _fingerprint(peer: Peer) -> str:
    """Another one for other packages, and for another program."""
    files = sorted(
        path for path in peer.folder.iterdir() if path.is_file() and path.name not in peer.without
    )
    parts = [" ".join(peer.packages).encode(), *(path.read_bytes() for path in files)]
    return sha256(b"\0".join(parts)).hexdigest()[:12]


def _run(*command: str, folder: Path, **environment: str) -> str:
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=INSTALL_TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError:
        raise Missing(f"{command[0]} is not installed") from None
    except subprocess.TimeoutExpired:
        raise Missing(f"{command[0]} took more than {INSTALL_TIMEOUT_S:.0f} s") from None
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise Missing(one_line(f"{command[0]}: {said[-1] if said else done.returncode}"))
    return done.stdout


def _bring_pip(peer: Peer, folder: Path) -> None:
    _run(sys.executable, "-m", "venv", "venv", folder=folder)
    pip = ("venv/bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    _run(*pip, *peer.packages, folder=folder)


def _command_pip(folder: Path) -> Installed:
    return Installed((str(folder / "venv/bin/python"), str(folder / "client.py")), _PYTHON)


def _bring_npm(peer: Peer, folder: Path) -> None:
    _run("npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", folder=folder)


def _command_npm(folder: Path) -> Installed:
    return Installed(("node", str(folder / "client.mjs")), {"NODE_NO_WARNINGS": "1"})


def _bring_go(peer: Peer, folder: Path) -> None:
    _run("go", "build", "-o", "client", ".", folder=folder)


def _command_go(folder: Path) -> Installed:
    return Installed((str(folder / "client"),), {})


def _bring_maven(peer: Peer, folder: Path) -> None:
    """Packages are here what the versions in ``pom.xml`` are set to: ``kafka.version=4.3.1``."""
    settings = [f"-D{package}" for package in peer.packages]
    copy = ("dependency:copy-dependencies", "-DoutputDirectory=lib", "-DincludeScope=runtime")
    _run("mvn", "--batch-mode", "--quiet", *copy, *settings, folder=folder)
    sources = [path.name for path in folder.glob("*.java")]
    if sources:
        _run("javac", "-cp", "lib/*", "-d", "classes", *sources, folder=folder)


def _command_maven(folder: Path) -> Installed:
    classpath = f"{folder / 'classes'}:{folder / 'lib'}/*"
    if (folder / "client.py").exists():
        return Installed(
            (sys.executable, str(folder / "client.py")), {"CLASSPATH": classpath, **_PYTHON}
        )
    return Installed(("java", *JAVA_OPTIONS, "-cp", classpath, "Client"), {})


def _bring_debian(peer: Peer, folder: Path) -> None:
    """Into the folder, not into the system, with what it needs and the system does not have."""
    if all(shutil.which(package) for package in peer.packages):
        return
    archives = folder / "archives"
    (archives / "partial").mkdir(parents=True)
    options = ("-o", f"Dir::Cache::archives={archives}", "-o", "Debug::NoLocking=1")
    _run("apt-get", *options, "--download-only", "--yes", "install", *peer.packages, folder=folder)
    for archive in archives.glob("*.deb"):
        _run("dpkg", "--extract", str(archive), "root", folder=folder)


def _command_debian(folder: Path) -> Installed:
    programs = folder / "root/usr/bin"
    libraries = ":".join(str(path) for path in (folder / "root").glob("usr/lib/*-linux-gnu"))
    environment = {"PATH": f"{programs}:{os.environ['PATH']}", **_PYTHON}
    if libraries:
        environment["LD_LIBRARY_PATH"] = libraries
    return Installed((sys.executable, str(folder / "client.py")), environment)


JAVA_OPTIONS: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m")
"""They live for seconds, several at a time."""

_PYTHON: Final = {
    "PYTHONPATH": str(CLIENTS / "python"),
    "PYTHONUNBUFFERED": "1",
    "PYTHONWARNINGS": "ignore",
}
"""Where programs in Python find what the contract is for all of them."""

Bring = Callable[[Peer, Path], None]
Command = Callable[[Path], Installed]

REGISTRIES: Final[dict[str, tuple[Bring, Command]]] = {
    "pip": (_bring_pip, _command_pip),
    "npm": (_bring_npm, _command_npm),
    "go": (_bring_go, _command_go),
    "maven": (_bring_maven, _command_maven),
    "debian": (_bring_debian, _command_debian),
}
