"""A peer's tests out of its repository: here one that is made for the occasion."""

import subprocess
from pathlib import Path

import pytest

from tests.peers import sources as module
from tests.peers.sources import NoSourcesError, Peer, sources

PEER = Peer("kafka-python", "file:///nowhere", "test")


def git(repository: Path, *arguments: str) -> None:
    name = ["-c", "user.name=x", "-c", "user.email=x@example"]
    subprocess.run(["git", "-C", str(repository), *name, *arguments], check=True)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With a test that says which version it is of."""
    path = tmp_path / "repositories" / PEER.package
    path.mkdir(parents=True)
    (path / "test").mkdir()
    git(path, "init", "--quiet")
    for tag in ("v2.0.9", "3.0.1", "3.0.10", "3.0.12", "3.1.0"):
        (path / "test" / "test_a.py").write_text(tag)
        (path / "other.py").write_text(tag)
        git(path, "add", ".")
        git(path, "commit", "--quiet", "-m", tag)
        git(path, "tag", tag)
    monkeypatch.setenv(module.LOCAL, str(path.parent))
    monkeypatch.setenv(module.CACHE, str(tmp_path / "cache"))
    return path


@pytest.mark.parametrize(
    ("installed", "taken"),
    [("3.0.10", "3.0.10"), ("3.0.11", "3.0.10"), ("2.0.9", "v2.0.9"), ("3.2.0", "3.1.0")],
)
def test_the_installed_version_or_the_last_before_it(
    repository: Path, installed: str, taken: str
) -> None:
    found = sources(PEER, installed)
    assert (found.version, found.installed) == (taken.removeprefix("v"), installed)
    assert [path.name for path in found.folder.iterdir()] == ["test"]
    assert (found.folder / "test" / "test_a.py").read_text() == taken


@pytest.mark.parametrize("installed", ["2.0.8", "4.0.0"])
def test_none_of_another_series(repository: Path, installed: str) -> None:
    with pytest.raises(NoSourcesError, match=installed):
        sources(PEER, installed)


def test_what_was_had_once_needs_no_repository(repository: Path, tmp_path: Path) -> None:
    had = sources(PEER, "3.0.12")
    repository.rename(tmp_path / "elsewhere")
    assert sources(PEER, "3.0.12") == had


def test_without_either_there_are_none(repository: Path, tmp_path: Path) -> None:
    repository.rename(tmp_path / "elsewhere")
    with pytest.raises(NoSourcesError, match="ls-remote"):
        sources(PEER, "3.0.12")
