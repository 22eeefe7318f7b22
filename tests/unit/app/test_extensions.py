"""Compiled extensions and the sources beside them."""

import shutil
from pathlib import Path

import pytest

from streamlog.app.extensions import EXTENSIONS, PACKAGE, digest, stale_extensions
from streamlog.app.run import check_extensions
from streamlog.errors import ConfigError

COMMENT = "# another line\n"


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A copy of those that are here."""
    for path in PACKAGE.glob("**/*.p[yx][xdi]"):
        copy = tmp_path / path.relative_to(PACKAGE)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    return tmp_path


def change(path: Path) -> None:
    path.write_text(path.read_text() + COMMENT)


def test_every_source_is_of_an_extension() -> None:
    found = {
        ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        for path in PACKAGE.glob("**/*.pyx")
    }
    assert found == set(EXTENSIONS)


def test_every_extension_fits_its_sources(sources: Path) -> None:
    assert stale_extensions() == stale_extensions(sources) == []
    check_extensions()


def test_an_extension_whose_source_has_changed_is_stale(sources: Path) -> None:
    change(sources / "ingest" / "frames.pyx")
    assert digest("ingest.frames", sources) != digest("ingest.frames")
    assert stale_extensions(sources) == ["ingest.frames"]


def test_a_changed_declaration_makes_every_extension_stale(sources: Path) -> None:
    change(sources / "record" / "compiled" / "codec.pxd")
    assert stale_extensions(sources) == list(EXTENSIONS)


def test_a_node_does_not_run_with_a_stale_extension(sources: Path) -> None:
    change(sources / "record" / "compiled" / "codec.pyx")
    with pytest.raises(ConfigError, match=r"are installed: record\.compiled\.codec;"):
        check_extensions(sources)


def test_without_sources_there_is_nothing_to_compare(tmp_path: Path) -> None:
    assert stale_extensions(tmp_path) == []
