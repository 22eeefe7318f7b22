"""Stories of Kafka's share groups: members that acquire records of the same partitions, accept, release, reject or
forget them, die and stand still, and leaders and coordinators that move.
"""

import asyncio
from contextlib import suppress
from typing import Final

from streamlog.config import GroupsSection, TransactionsSection
from streamlog.metadata.commands import ElectLeader
from streamlog.metadata.image.metadata_image import StreamImage
from streamlog.metadata.stream.stream_config import OFFSETS_STREAM
from streamlog.model import NO_LEADER, TopicPartition
from tests.simulation.cluster.applications import INPUT, ApplicationsWorld
from tests.simulation.cluster.kafka_client import KafkaClient, Refused, Unanswered
from tests.simulation.cluster.node import Coordination
from tests.simulation.cluster.share_checkers import ShareLog
from tests.simulation.cluster.share_members import ShareMember
from tests.simulation.cluster.swarm import Kind
from tests.simulation.publisher import Publisher

GROUP: Final = "workers"
COUNT_MAX: Final = 10
DEPOSED_US: Final = (300_000, 1_500_000)
"""Between two leaders that give way to others."""
LOCK_MS: Final = 1_000
BEAT_S: Final = 0.2
STUCK_S: Final = 2.5
"""Longer than a lock."""


class ShareGroupsWorld(ApplicationsWorld):
    """One group of a few members."""

    COORDINATION = Coordination(
        GroupsSection(
            offsets_partitions=2,
            share_session_timeout_ms=1_500,
            share_heartbeat_interval_ms=200,
            share_record_lock_duration_ms=LOCK_MS,
            share_delivery_count_limit=COUNT_MAX,
            share_auto_offset_reset="earliest",
        ),
        TransactionsSection(state_partitions=2),
    )

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.share_logs = {tp: ShareLog(tp, COUNT_MAX) for tp in self.places(INPUT)}
        self.publishers.kinds = [(1, Publisher)]

    def _created_one(self, stream: StreamImage) -> None:
        self.publishers.publish_to(stream)

    def _begin_applications(self) -> None:
        for number in range(self.rng.choice((2, 3))):
            self.begin_application(f"worker{number}", self._work)

    async def _work(self, client: KafkaClient) -> None:
        rng, loop = self.rng, asyncio.get_running_loop()
        log_of = self.share_logs.__getitem__
        member = ShareMember(client, GROUP, INPUT, rng, log_of, self._offsets)
        beats_at_s = 0.0
        while not self._is_over():
            try:
                if loop.time() >= beats_at_s:
                    await member.beat()
                    beats_at_s = loop.time() + BEAT_S
                await member.turn()
            except (Unanswered, Refused):
                await client.pause()
            if not member.assigned:
                await asyncio.sleep(BEAT_S / 2)
            if self.goes_on and rng.random() < 0.02:
                await asyncio.sleep(rng.uniform(0, STUCK_S))
        with suppress(Unanswered, Refused):  # else it is missed when its session ends
            await member.leave()

    def _is_over(self) -> bool:
        """Each record is accepted or rejected, or was delivered as often as it may be."""
        if self.goes_on or not self.publishers.done:
            return False
        return not any(self._undelivered(tp) for tp in self.places(INPUT))

    def _offsets(self, tp: TopicPartition) -> list[int]:
        committed = self.log_of(tp)
        return [] if committed is None else [offset for offset, _ in committed.visible]

    def _undelivered(self, tp: TopicPartition) -> list[int]:
        return self.share_logs[tp].undone(self._offsets(tp))

    def _state(self) -> str:
        undone = {str(tp): self._undelivered(tp) for tp in self.places(INPUT)}
        return f"not delivered, or not done with: {undone}\n{super()._state()}"


class ShareLeadersLate(ShareGroupsWorld):
    """Leaders give way to others, and hear of it late: meanwhile members go on with them."""

    def faults(self) -> list[Kind]:
        return []

    def always(self) -> list[Kind]:
        return [self._kill_an_application]

    def _begin_applications(self) -> None:
        super()._begin_applications()
        self._depose_again()

    def _depose_again(self) -> None:
        if self.goes_on:
            self._depose_late()
            self.events.after(self.rng.randint(*DEPOSED_US), self._depose_again)

    def _depose_late(self) -> None:
        stream = self._known[INPUT]
        number = self.rng.randrange(len(stream.partitions))
        partition = stream.partitions[number]
        others = [it for it in partition.isr if it != partition.leader]
        if others and partition.leader != NO_LEADER:
            self._lag(self.hosts[partition.leader])
            leader = self.rng.choice(others)
            self._ask(ElectLeader(stream=INPUT, partition=number, leader=leader))


class ShareLeadersEnd(ShareGroupsWorld):
    """Leaders give way to others, and coordinators end with states that are not committed."""

    def faults(self) -> list[Kind]:
        return [self._act_late, self.troubles.isolate, self.troubles.stop, self._kill_a_leader]

    def always(self) -> list[Kind]:
        return [self._elect_another]

    def _begin_applications(self) -> None:
        super()._begin_applications()
        self.strike_at_an_append(OFFSETS_STREAM)
