"""Stories of a cluster in which fast batches are published, and end with their leaders."""

from streamlog.ingest.partition_ingest import PartitionIngest
from streamlog.metadata.stream.stream_config import StreamConfig
from tests.simulation.cluster.swarm import Kind, RepetitionsWait, SwarmWorld
from tests.simulation.fast_publisher import FastPublisher, GapsOkPublisher
from tests.simulation.publisher import Publisher


class FastBatchesWorld(SwarmWorld):
    """Leaders give way to others amid the batches, and streams are made again under their names."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.publishers.kinds = [(1, Publisher), (1, FastPublisher), (2, GapsOkPublisher)]
        self.nats.said = self.publishers.said

    def always(self) -> list[Kind]:
        return [self._elect_another, self._kill_a_leader, self._cut_a_leader_off, self._recreate]

    def _config(self, name: str, nodes: int) -> StreamConfig:
        return super()._config(name, nodes).changed(allow_batched=True)


class FastRepetitionsWait(RepetitionsWait):
    """As its parent, for repeated messages of fast batches."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.publishers.kinds = [(1, FastPublisher), (2, GapsOkPublisher)]
        self.nats.said = self.publishers.said

    def _config(self, name: str, nodes: int) -> StreamConfig:
        return super()._config(name, nodes).changed(allow_batched=True)

    def _awaits(self, ingest: PartitionIngest) -> bool:
        waiting = ingest.fast._batches._waiting
        return any(not item.sequence for batch in waiting for item in batch.in_flight)
