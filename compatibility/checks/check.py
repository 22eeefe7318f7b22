"""One column of the table."""

from collections.abc import Callable
from typing import NamedTuple

from compatibility.outcome import Failed
from compatibility.program import Record
from compatibility.scene import Scene


class Check(NamedTuple):
    """``run`` raises Failed or NotOffered; it returns what the client passes without, mostly ""."""

    name: str
    title: str
    run: Callable[[Scene], str]


def same(found: object, wanted: object, what: str) -> None:
    """Failed if not."""
    if found != wanted:
        raise Failed(f"{what}: {found!r} instead of {wanted!r}")


def same_records(
    found: list[Record], wanted: list[str], first: int = 0, partition: int = 0
) -> None:
    """These values at offsets from ``first`` on; Failed names the first difference."""
    for offset, (record, text) in enumerate(zip(found, wanted, strict=False), first):
        same(record, Record(partition, offset, text), f"record {offset}")
    same(len(found), len(wanted), "count of records")
