"""The answer to a request of a group, which may be long in coming."""

from collections.abc import Callable
from typing import Any


def _nobody() -> None:
    pass


class Reply:
    """A token of the core's. ``told`` is called when there is a result, once."""

    __slots__ = ("_result", "is_there", "told")

    def __init__(self) -> None:
        self.told: Callable[[], None] = _nobody
        self.is_there = False
        self._result: Any = None

    @property
    def result(self) -> Any:
        assert self.is_there
        return self._result

    def give(self, result: Any) -> None:
        assert not self.is_there, "an answer is given once"
        self._result, self.is_there = result, True
        self.told()
