"""What a stream has the node's own NATS connection read and write. Pure."""

from typing import Final

from streamlog.metadata.republish import destination_of
from streamlog.metadata.stream import StreamConfig

BINDING_SETTINGS: Final = frozenset({"subjects", "republish"})


def bound_subjects(config: StreamConfig) -> frozenset[str]:
    """Subjects that it stores, and one that it is published under again; with wildcards."""
    bound = set(config.subjects)
    if config.republish:
        bound.add(destination_of(config.republish))
    return frozenset(bound)
