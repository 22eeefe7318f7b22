"""Messages without an id, which are published once: they are stored at most once, whoever leads when a copy of one
arrives.
"""

import json
from functools import partial

from streamlog.metadata.commands import ElectLeader
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.model import NO_LEADER, NodeId
from tests.simulation.cluster.links import NATS
from tests.simulation.cluster.swarm import Kind, SwarmWorld
from tests.simulation.publisher import Publisher

GATHERED_US = (50_000, 600_000)
"""How long copies are held back before the node to which they go is to lead, and after."""


class OncePublisher(Publisher):
    """Its messages have no id, and are sent once: nothing but the ways that they take may double them."""

    @property
    def waits_for_each(self) -> bool:
        return False  # it does not wait until one that got no answer is stored, or lost

    def answered(self, reply: str, payload: bytes) -> None:
        number = int(reply.partition(".")[2])
        if "error" in json.loads(payload):
            self._give_up(number)
        else:
            super().answered(reply, payload)

    def _try(self, number: int) -> None:
        self._sent_us[number] = self._events.now_us
        head, body = b"NATS/1.0\r\nA: b\r\n\r\n", f"{self.name}:{number}".encode()
        line = f"HMSG s 1 {self.name}.{number} {len(head)} {len(head) + len(body)}\r\n".encode()
        self._send(line + head + body + b"\r\n")
        self._events.after(self._timeout_us, partial(self._give_up, number))

    def _give_up(self, number: int) -> None:
        if self._waiting.pop(number, None) is not None:
            self._next_soon()


class CopiesComeLate(SwarmWorld):
    """Each node that leads a partition of a stream gets a copy of each message. Those to one node are held back
    until it leads the partition whose former leader has stored them: nothing is stored twice. The publishers give
    no ids, and repeat nothing.
    """

    NODES = (3,)

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.publishers.kinds = [(1, OncePublisher), (4, OncePublisher)]

    def faults(self) -> list[Kind]:
        troubles = self.troubles
        return [troubles.kill, troubles.stop, self._kill_a_leader, self._elect_another]

    def always(self) -> list[Kind]:
        return [self._hold_and_elect, self._hold_and_elect]

    def _config(self, name: str, nodes: int) -> StreamConfig:
        """Now spread by a token of the subject, now with a subject for each partition."""
        if self.rng.random() < 0.3:
            return StreamConfig.of(name=name, partitions=2, replicas=3)
        return StreamConfig.of(
            name=name,
            subjects=(f"{name}.*",),
            partitions=self.rng.choice((2, 3)),
            replicas=3,
            partition_by="tokens:2",
        )

    def _hold_and_elect(self) -> None:
        place = self._place()
        if place is None:
            return
        stream, number = place
        partition = stream.partitions[number]
        others = [it for it in partition.isr if it != partition.leader]
        if partition.leader == NO_LEADER or not others:
            return
        target = self.rng.choice(others)
        before_us, after_us = (self.rng.randint(*GATHERED_US) for _ in range(2))
        self.troubles.tell(f"what NATS has for {target} is held for {before_us + after_us} us")
        self._hold(target, before_us + after_us)
        elect = ElectLeader(stream=stream.name, partition=number, leader=target)
        self.events.after(before_us, partial(self._ask, elect))

    def _hold(self, target: NodeId, for_us: int) -> None:
        """What is sent to the node in that time comes at the end of it."""
        self.links.slow_down(NATS, target, for_us)
        self.events.after(for_us, partial(self.links.slow_down, NATS, target, 0))
