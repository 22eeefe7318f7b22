"""The peers' tests, out of their own repositories into a cache outside of ours.

Their packages on PyPI come without tests, the source ones, too, so git has to reach the
repositories, or ``PEER_REPOSITORIES`` names a folder with clones called as the packages are.
"""

import os
import re
import shutil
import subprocess
import tarfile
from io import BytesIO
from pathlib import Path
from typing import Any, Final, NamedTuple

GIT_TIMEOUT_S: Final = 120.0
LOCAL: Final = "PEER_REPOSITORIES"
CACHE: Final = "PEER_TESTS_CACHE"

_TAG = re.compile(r"(v?(\d+)\.(\d+)\.(\d+))$", re.MULTILINE)


class NoSourcesError(Exception):
    """The tests cannot be had here."""


class Peer(NamedTuple):
    """A client of Kafka or NATS that has tests of its own."""

    package: str
    """As PyPI calls it."""
    repository: str
    tests: str
    """Their folder in the repository."""
    keeps_conftest: bool = True
    """False where all that is in theirs is replaced."""
    root: str = "."
    """The folder in the repository that they are run from."""
    speaks_nats: bool = False


PEERS: Final = {
    peer.package: peer
    for peer in (
        Peer("aiokafka", "https://github.com/aio-libs/aiokafka", "tests", keeps_conftest=False),
        Peer("kafka-python", "https://github.com/dpkp/kafka-python", "test"),
        Peer(
            "nats-py",
            "https://github.com/nats-io/nats.py",
            "nats/tests",
            root="nats",
            speaks_nats=True,
        ),
    )
}


class Sources(NamedTuple):
    """Where the tests are, and of which version."""

    folder: Path
    """Holds the folder of tests."""
    version: str
    installed: str


def sources(peer: Peer, installed: str) -> Sources:
    """Of the version that is installed, or the last one before it. Raises NoSourcesError."""
    repository = _repository(peer)
    try:
        tag = _tag(_git("ls-remote", "--tags", repository), installed)
    except NoSourcesError as error:
        tag = _cached_tag(peer, installed, error)
    folder = cache() / f"{peer.package}-{tag}"
    if not folder.exists():
        _fetch(repository, tag, peer.tests, folder)
    return Sources(folder, tag.removeprefix("v"), installed)


def _repository(peer: Peer) -> str:
    folder = os.environ.get(LOCAL)
    return peer.repository if folder is None else Path(folder, peer.package).resolve().as_uri()


def cache() -> Path:
    """What is fetched or built is kept there."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "streamlog", "peers")
    return Path(os.environ.get(CACHE) or default)


def _cached_tag(peer: Peer, installed: str, error: NoSourcesError) -> str:
    """What was had before, where the repository is out of reach."""
    names = (path.name for path in cache().glob(f"{peer.package}-*"))
    try:
        return _tag("\n".join(names), installed)
    except NoSourcesError:
        raise error from None


def _tag(listed: str, installed: str) -> str:
    wanted = tuple(map(int, installed.split(".")[:3]))
    tags = {tuple(map(int, parts)): name for name, *parts in _TAG.findall(listed)}
    fitting = [version for version in tags if version[:1] == wanted[:1] and version <= wanted]
    if not fitting:
        raise NoSourcesError(f"no tag of version {installed} or one before it")
    return str(tags[max(fitting)])


_WITHIN: Final[dict[str, Any]] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
"""Python 3.11 has it since 3.11.4."""


def _fetch(repository: str, tag: str, tests: str, folder: Path) -> None:
    """``folder`` is there whole or not at all."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    clone, partial = folder.with_suffix(".git"), folder.with_suffix(".part")
    for path in (clone, partial):
        shutil.rmtree(path, ignore_errors=True)
    _git("clone", "--quiet", "--bare", "--depth", "1", "--branch", tag, repository, str(clone))
    archive = subprocess.run(
        ["git", "-C", str(clone), "archive", tag, tests],
        capture_output=True,
        check=True,
        timeout=GIT_TIMEOUT_S,
    )
    with tarfile.open(fileobj=BytesIO(archive.stdout)) as files:
        files.extractall(partial, **_WITHIN)
    shutil.rmtree(clone)
    partial.rename(folder)


def _git(*arguments: str) -> str:
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}
    try:
        done = subprocess.run(
            ["git", *arguments],
            capture_output=True,
            text=True,
            check=True,
            env=environment,
            timeout=GIT_TIMEOUT_S,
        )
    except subprocess.CalledProcessError as error:
        raise NoSourcesError(f"git {arguments[0]}: {error.stderr.strip()[-200:]}") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoSourcesError(f"git {arguments[0]}: {error}") from None
    return done.stdout
