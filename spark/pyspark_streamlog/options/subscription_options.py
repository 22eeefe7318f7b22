"""Which partitions a read is about, as its options name them."""

import re

from pyspark_streamlog.options.offset_options import parse_assignment
from pyspark_streamlog.options.option_map import OptionMap
from streamlog.arrow.options.subscription import StreamSubscription
from streamlog.errors import ConfigError


def parse_subscription(given: OptionMap) -> StreamSubscription:
    """Raises ConfigError."""
    names = ("subscribe", "subscribePattern", "assign")
    named = [name for name in names if given.text(name) is not None]
    if len(named) > 1:
        raise ConfigError(named[1], f"{named[0]} is given, too", "keep one of them")
    streams = (given.text("subscribe") or "").split(",")
    assigned = given.text("assign")
    return StreamSubscription(
        tuple(name.strip() for name in streams if name.strip()),
        _pattern(given.text("subscribePattern")),
        () if assigned is None else parse_assignment("assign", assigned),
    )


def _pattern(text: str | None) -> str | None:
    if text is not None:
        try:
            re.compile(text)
        except re.error as error:
            problem = f"{text!r} is not a regular expression ({error})"
            raise ConfigError("subscribePattern", problem, "correct it") from None
    return text
