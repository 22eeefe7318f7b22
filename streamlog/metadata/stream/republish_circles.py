"""Streams that would publish to each other in a circle: a message would go round for ever. Pure.

A circle goes through the stream that is made or changed. So nothing is compared for a stream that
publishes nothing again, which is nearly every one.
"""

from collections.abc import Iterable
from typing import Final

from streamlog.errors import InvalidStreamConfig
from streamlog.metadata.stream.republish import Republish, destination_of
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.metadata.stream.subjects import overlap

STEPS_MAX: Final = 100_000
"""Comparisons of two subjects, about 0.1 s."""


def check_circle(config: StreamConfig, streams: Iterable[StreamConfig]) -> None:
    """``streams``: those that there are; one called as ``config`` counts as that.

    Raises InvalidStreamConfig where a message of ``config`` may come back to it.
    """
    if not config.republish:
        return
    links = [_Link(it) for it in streams if it.republish and it.name != config.name]
    begin = _Link(config)
    waiting, steps = [begin], 0
    while waiting:
        said = waiting.pop().destination
        steps += begin.cost + sum(link.cost for link in links)
        if steps > STEPS_MAX:
            raise InvalidStreamConfig("republish: too many streams publish again to compare them")
        if begin.says_again(said):
            raise InvalidStreamConfig("republish: forms a cycle with other streams")
        reached = [link for link in links if link.says_again(said)]
        links = [link for link in links if link not in reached]
        waiting += reached


class _Link:
    """What a stream hears, which of it is published again, and where."""

    def __init__(self, config: StreamConfig) -> None:
        self._hears = config.hears
        self.destination = destination_of(config.republish)
        self._source = Republish.parse(config.republish).transform.source
        self._renames = bool(config.subject_transform)
        self.cost = 2 * len(config.subjects) + 1

    def says_again(self, subject: str) -> bool:
        """Whether it may publish a message again that comes under ``subject``."""
        return (self._renames or overlap(self._source, subject)) and self._hears(subject)
