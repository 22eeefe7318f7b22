from collections.abc import Callable
from typing import NamedTuple


class WaitTimer(NamedTuple):
    """The time after which a request is answered at the latest. It passes when ``fire`` is called."""

    seconds: float
    fire: Callable[[], object]
