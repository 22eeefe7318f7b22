"""Each name of the code in the documentation's tables exists."""

import re

import pytest

from documentation.code_names import CodeName, code_names, problem
from documentation.links import DOCS


@pytest.mark.parametrize("page", ["glossary.md", "walks.md"])
def test_each_named_function_exists(page: str) -> None:
    named = list(code_names((DOCS / page).read_text()))
    assert len(named) > 25
    assert [found for name in named if (found := problem(name))] == []


def test_the_walks_are_counted() -> None:
    walks = (DOCS / "walks.md").read_text().split("\n## ")[1:]
    assert len(walks) == 3
    for walk in walks:
        said = re.search(r"^(\d+) functions in (\d+) files\.$", walk, re.M)
        named = set(code_names(walk))
        assert said is not None
        counted = len(named), len({name.path for name in named})
        assert (int(said[1]), int(said[2])) == counted, walk.splitlines()[0]


def test_names_are_in_the_cell_after_their_file() -> None:
    row = "| 1 | `log/log.py` | `PartitionLog.read`, `NAME` | says `x.py` and `read` |\n"
    assert list(code_names(row)) == [
        CodeName("log/log.py", "PartitionLog.read"),
        CodeName("log/log.py", "NAME"),
    ]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("log/log.py", "PartitionLog.reed"),
        ("log/log.py", "read"),
        ("log/absent.py", "PartitionLog"),
        ("ingest/parser/_partitioner.pyx", "Partitioner.shares"),
    ],
)
def test_an_absent_name_would_be_found(path: str, name: str) -> None:
    assert problem(CodeName(path, name))


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("log/log.py", "PartitionLog.read"),
        ("replication/leader.py", "LeaderProgress.high_watermark"),
        ("ingest/parser/_partitioner.pyx", "Partitioner.share"),
    ],
)
def test_methods_and_attributes_are_found(path: str, name: str) -> None:
    assert problem(CodeName(path, name)) == ""
