"""The versions of Python that a wheel is made for are those that the project names."""

import re
import tomllib
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
PYPROJECT: Final[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text())
VERSIONS: Final = ["3.11", "3.12", "3.13", "3.14"]


def test_each_version_of_python_has_a_wheel() -> None:
    built = PYPROJECT["tool"]["cibuildwheel"]["build"]
    assert built == [f"cp{version.replace('.', '')}-*" for version in VERSIONS]


def test_the_classifiers_name_them() -> None:
    found = re.findall(r"Python :: (3\.\d+)", "\n".join(PYPROJECT["project"]["classifiers"]))
    assert found == VERSIONS
    assert PYPROJECT["project"]["requires-python"] == f">={VERSIONS[0]}"


def test_the_guide_to_a_release_names_them() -> None:
    text = (ROOT / "docs" / "releasing.md").read_text()
    assert f"CPython {VERSIONS[0]} to {VERSIONS[-1]}" in text
