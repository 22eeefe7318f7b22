"""Names of the code are found in the documentation's tables, and in the code."""

import pytest

from documentation.code_names import CodeName, code_names, problem


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
        ("ingest/frames.pyx", "Partitioner.shares"),
    ],
)
def test_an_absent_name_would_be_found(path: str, name: str) -> None:
    assert problem(CodeName(path, name))


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("log/log.py", "PartitionLog.read"),
        ("replication/leader.py", "LeaderProgress.high_watermark"),
        ("ingest/partitioner.pxi", "Partitioner.share"),
    ],
)
def test_methods_and_attributes_are_found(path: str, name: str) -> None:
    assert problem(CodeName(path, name)) == ""
