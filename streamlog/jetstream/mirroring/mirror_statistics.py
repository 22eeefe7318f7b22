"""What is told of a mirror, or of the sources of a stream. Pure."""

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple, Self

from streamlog.metadata.stream.stream_origin import FILTERS_SEPARATOR, StreamOrigin

NEVER: Final = -1


class OriginState(NamedTuple):
    """How far one partition has come with one origin."""

    index_name: str
    lag: int = 0
    """Messages of the origin that are not here yet, as it said last."""
    active_ms: int = NEVER
    """Since something was heard of it."""
    error: dict[str, Any] | None = None
    sequence: int = 0
    """The last one of the origin that is here."""
    restarts: int = 0

    @property
    def place(self) -> str:
        """For people: the stream, its API, and the filters, if there are any."""
        place, filters, _ = self.index_name.split(" ")
        return place if filters == ">" else f"{place} {filters.replace(FILTERS_SEPARATOR, ' ')}"

    def also(self, other: Self) -> Self:
        """Of two partitions together."""
        actives = [it.active_ms for it in (self, other) if it.active_ms != NEVER]
        return self._replace(
            lag=self.lag + other.lag,
            active_ms=max(actives, default=NEVER),
            error=self.error or other.error,
            sequence=max(self.sequence, other.sequence),
            restarts=self.restarts + other.restarts,
        )


class FedStatistics(NamedTuple):
    """One partition that this node feeds."""

    stream: str
    partition: int
    states: Sequence[OriginState]


def joined(states: Iterable[OriginState]) -> dict[str, OriginState]:
    """By index name, over all partitions."""
    found = dict[str, OriginState]()
    for it in states:
        known = found.get(it.index_name)
        found[it.index_name] = it if known is None else known.also(it)
    return found


def origin_info(
    origin: StreamOrigin, state: OriginState | None, *, is_mirror: bool = False
) -> dict[str, Any]:
    """JetStream's StreamSourceInfo; of a mirror it leaves out the filter."""
    state = state or OriginState(origin.index_name)
    said: dict[str, Any] = {"name": origin.name}
    if origin.api or origin.deliver:
        said["external"] = {"api": origin.api, "deliver": origin.deliver}
    said["lag"] = state.lag
    said["active"] = state.active_ms if state.active_ms == NEVER else state.active_ms * 1_000_000
    if state.error:
        said["error"] = state.error
    if origin.filter_subject and not is_mirror:
        said["filter_subject"] = origin.filter_subject
    if origin.transforms:
        said["subject_transforms"] = [it._asdict() for it in origin.transforms]
    return said
