"""How often our functions are called, and what they call: the same on every run."""

import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

OURS: Final = f"{os.sep}streamlog{os.sep}"


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """The calls that our code gets and makes."""
    calls: Counter[str] = Counter()

    def heard(frame: FrameType, event: str, argument: object) -> None:
        if event in {"call", "c_call"} and OURS in frame.f_code.co_filename:
            name = frame.f_code.co_qualname if event == "call" else name_of(argument)
            if not name.startswith("lock.__"):  # of ``with lock``: told from Python 3.14 on only
                calls[name] += 1

    before = sys.getprofile()
    sys.setprofile(heard)
    try:
        yield calls
    finally:
        sys.setprofile(before)


def name_of(function: object) -> str:
    return getattr(function, "__qualname__", str(function))
