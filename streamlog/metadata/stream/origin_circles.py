"""Streams of a cluster that take messages from each other. Pure."""

from collections.abc import Callable, Iterator

from streamlog.errors import InvalidStreamConfig
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.metadata.stream.stream_origin import StreamOrigin, origin_of, origins_of


def all_origins(config: StreamConfig) -> tuple[StreamOrigin, ...]:
    """The mirror, or the sources."""
    if config.mirror:
        return (origin_of(config.mirror),)
    return origins_of(config.sources)


def local_origins(config: StreamConfig) -> Iterator[str]:
    """Names of streams of this cluster."""
    return (it.name for it in all_origins(config) if not it.api)


def check_origins(
    config: StreamConfig, known: StreamConfig | None, find: Callable[[str], StreamConfig | None]
) -> None:
    """``known``: what the stream was; ``find``: other streams by their names.

    Raises InvalidStreamConfig where messages would go in a circle, where a mirror has another number of partitions
    than its origin, and where a mirror is to become that of another origin.
    """
    if known is not None and config.mirror and config.mirror != known.mirror:
        raise InvalidStreamConfig("stream mirror configuration can not be updated")
    if config.mirror:
        for name in local_origins(config):
            origin = find(name)
            if origin is not None and origin.partitions != config.partitions:
                raise InvalidStreamConfig(
                    f"mirror: {name!r} has {origin.partitions} partitions: a mirror needs as many,"
                    f" not {config.partitions}"
                )
    if not config.is_fed:
        return
    waiting, seen = list(local_origins(config)), set[str]()
    while waiting:
        name = waiting.pop()
        if name == config.name:
            raise InvalidStreamConfig("detected cycle")
        found = None if name in seen else find(name)
        seen.add(name)
        if found is not None and found.is_fed:
            waiting += local_origins(found)
