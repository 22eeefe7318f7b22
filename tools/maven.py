"""Java archives with all that they depend on, by Maven, kept for the next time."""

import shutil
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

TIMEOUT_S: Final = 600.0
_POM: Final = """
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>streamlog</groupId>
  <artifactId>archives</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>{}</dependencies>
</project>
"""
_DEPENDENCY: Final = """
    <dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>
    <type>{}</type>{}</dependency>
"""


class MavenError(Exception):
    """The archives cannot be had."""


def archives(artifacts: Sequence[str], folder: Path) -> Path:
    """``folder`` with the archives of ``artifacts``, each as ``group:name:version`` or
    ``group:name:version:type:classifier``; fetched unless it is there. Raises MavenError.
    """
    if not folder.exists():
        partial = _begin(folder)
        dependencies = (_dependency(it) for it in artifacts)
        (partial / "pom.xml").write_text(_POM.format("".join(dependencies)))
        _run(partial, "dependency:copy-dependencies", f"-DoutputDirectory={partial}")
        partial.rename(folder)
    return folder


def unpacked(artifact: str, folder: Path) -> Path:
    """``folder`` with what is in the tar archive ``group:name:version:type:classifier``; fetched unless it is there.
    Raises MavenError.
    """
    if not folder.exists():
        partial = _begin(folder)
        _run(partial, "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={partial}")
        (archive,) = partial.iterdir()
        with tarfile.open(archive) as content:
            content.extractall(partial, filter="data")
        archive.unlink()
        partial.rename(folder)
    return folder


def _dependency(artifact: str) -> str:
    group, name, version, *more = artifact.split(":")
    kind, classifier = more or ("jar", "")
    told = f"<classifier>{classifier}</classifier>" if classifier else ""
    return _DEPENDENCY.format(group, name, version, kind, told)


def _begin(folder: Path) -> Path:
    """An empty folder, which becomes ``folder`` when all is in it."""
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            raise MavenError(f"{program} is needed")
    partial = folder.parent / f"{folder.name}.part"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    return partial


def _run(folder: Path, *arguments: str) -> None:
    try:
        subprocess.run(
            ["mvn", "--quiet", "--batch-mode", *arguments],
            cwd=folder,
            capture_output=True,
            text=True,
            check=True,
            timeout=TIMEOUT_S,
        )
    except subprocess.CalledProcessError as error:
        raise MavenError(f"mvn: {error.stdout.strip()[-200:]}") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MavenError(f"mvn: {error}") from None
