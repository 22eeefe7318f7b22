"""What a stream has the node's own NATS connection read and write. Pure."""

from typing import Final

from streamlog.metadata.stream.origin_circles import all_origins
from streamlog.metadata.stream.republish import destination_of
from streamlog.metadata.stream.stream_config import StreamConfig

BINDING_SETTINGS: Final = frozenset(
    {"subjects", "republish", "partitions", "partition_by", "mirror", "sources"}
)


def bound_subjects(config: StreamConfig) -> frozenset[str]:
    """Subjects that it stores, those of all its partitions, one that it is published under again, and those by
    which it asks origins of other clusters, or hears consumers of origins; with wildcards. Partition i of a stream
    listens on ``subject.i``, which may be another stream's subject: the right to ``subject`` does not include it.
    """
    numbers = range(1 if config.is_spread else config.partitions)
    bound = {subject for number in numbers for subject in config.subjects_of(number)}
    if config.republish:
        bound.add(destination_of(config.republish))
    for origin in all_origins(config) if config.is_fed else ():
        bound.update(f"{prefix}.>" for prefix in (origin.api, origin.deliver) if prefix)
        if origin.consumer_deliver:
            bound.add(origin.consumer_deliver)
    return frozenset(bound)
