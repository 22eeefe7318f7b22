"""Ids of events: different from each other, and from those of other nodes. They are no secret."""

import itertools
import uuid
from collections.abc import Callable, Iterator


def event_ids() -> Callable[[], str]:
    """A source of ids of 32 hexadecimal digits: a random half, drawn once, and a number. To draw each of them at
    random asks the operating system each time.
    """
    random, numbers = uuid.uuid4().hex[:16], itertools.count()
    ids: Iterator[str] = (f"{random}{number:016x}" for number in numbers)
    return ids.__next__
