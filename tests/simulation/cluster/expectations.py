"""Stories of messages that expect another one to be the last, while leaders change and hear of it late."""

from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.model import NO_LEADER
from tests.simulation.cluster.swarm import Kind, SwarmWorld
from tests.simulation.publisher import ExpectingPublisher, Publisher


class ExpectationsWorld(SwarmWorld):
    """What is refused since another message is the last one must never be stored, by any leader."""

    NODES = (3,)

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.publishers.kinds = [(1, ExpectingPublisher), (1, Publisher)]

    def _config(self, name: str, nodes: int) -> StreamConfig:
        return super()._config(name, nodes).changed(partitions=1, replicas=3, min_isr=1)

    def faults(self) -> list[Kind]:
        return [self._act_late, self._cut_a_leader_off, self._kill_a_leader]

    def always(self) -> list[Kind]:
        return [self._stop_a_leader, self._stop_a_leader, self._elect_another]

    def _stop_a_leader(self) -> None:
        """Its successor stores messages meanwhile, and it gets those, too, when it goes on."""
        place = self._place()
        if place is not None:
            stream, number = place
            leader = stream.partitions[number].leader
            if leader != NO_LEADER:
                self.troubles.stop(self.hosts[leader])
