"""Stories of Kafka's consumer groups: members that come, go, die, stand still and are replaced, and coordinators that
move.

Members of both protocols consume what comes over NATS, and commit what they have consumed.
"""

import asyncio
from contextlib import suppress
from functools import partial
from typing import Final

from streamlog.config import GroupsSection, TransactionsSection
from streamlog.log.log import PartitionLog
from streamlog.metadata.image.metadata_image import StreamImage
from streamlog.metadata.stream.stream_config import OFFSETS_STREAM
from streamlog.model import TopicPartition
from tests.simulation.checkers import Violation
from tests.simulation.cluster.applications import INPUT, ApplicationsWorld
from tests.simulation.cluster.committed_reader import committed_offset, fetched
from tests.simulation.cluster.group_checkers import Commit, GroupLog, GroupLogs
from tests.simulation.cluster.group_members import (
    JOINING,
    SESSION_MS,
    ClassicMember,
    ConsumerMember,
    GroupMember,
    Mark,
    NoMember,
)
from tests.simulation.cluster.kafka_client import KafkaClient, Refused, Unanswered
from tests.simulation.cluster.node import Coordination
from tests.simulation.cluster.swarm import Kind
from tests.simulation.publisher import Publisher

CONSUMER: Final = "consumer"
CLASSIC: Final = "classic"
MIXED: Final = "mixed"
BEAT_S: Final = 0.2
FEW_BYTES: Final = 200
MANY_BYTES: Final = 1 << 20


class ConsumerGroupsWorld(ApplicationsWorld):
    """One group or two."""

    COORDINATION = Coordination(
        GroupsSection(
            offsets_partitions=2,
            initial_rebalance_delay_ms=100,
            session_timeout_ms_min=1_000,
            consumer_session_timeout_ms=SESSION_MS,
            consumer_heartbeat_interval_ms=200,
        ),
        TransactionsSection(state_partitions=2),
    )

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        rng = self.rng
        self.groups = rng.choice(
            ((CONSUMER,), (CONSUMER,), (CLASSIC,), (MIXED,), (CONSUMER, CLASSIC))
        )
        self.group_logs = GroupLogs(self.groups)
        self.consumed: dict[tuple[str, TopicPartition], set[int]] = {}
        """Offsets that any member has consumed, by group."""
        self.publishers.kinds = [(1, Publisher)]
        self._wanted_to_leave = 0

    def always(self) -> list[Kind]:
        return [*super().always(), self._have_one_leave]

    def _created_one(self, stream: StreamImage) -> None:
        self.publishers.publish_to(stream)

    def _begin_applications(self) -> None:
        for group in self.groups:
            for number in range(self.rng.choice((2, 3))):
                name = f"{group}{number}"
                self.begin_application(name, partial(self._consume, group, name))

    def _take_in_internal(
        self, tp: TopicPartition, log: PartitionLog, start: int, end: int
    ) -> None:
        if tp.stream == OFFSETS_STREAM:
            self.group_logs.take_in(log, start, end)

    # Members

    def _member(self, group: str, name: str, client: KafkaClient) -> GroupMember:
        rng = self.rng
        instance_id = name if rng.random() < 0.3 else None
        is_classic = group == CLASSIC or (group == MIXED and rng.random() < 0.5)
        if not is_classic:
            return ConsumerMember(client, group, INPUT, rng, instance_id=instance_id)
        member = ClassicMember(client, group, INPUT, rng, instance_id=instance_id)
        member.partitions = tuple(self.places(INPUT))
        return member

    async def _consume(self, group: str, name: str, client: KafkaClient) -> None:
        consumer = GroupConsumer(self, group, self._member(group, name, client), client)
        while not self._is_over(group):
            await consumer.turn()
        await consumer.leave()

    def _have_one_leave(self) -> None:
        self._wanted_to_leave += 1

    def leaves(self) -> bool:
        """Whether the member that asks is to leave, and to join again."""
        if self._wanted_to_leave:
            self._wanted_to_leave -= 1
            return True
        return False

    def _is_over(self, group: str) -> bool:
        """All is consumed, and each member that there is knows its part."""
        if self.goes_on or not self.publishers.done:
            return False
        log = self.group_logs.of[group]
        return self._is_consumed(log) and self._is_assigned(log)

    def _is_consumed(self, log: GroupLog) -> bool:
        for tp in self.places(INPUT):
            committed = self.log_of(tp)
            if committed is not None and log.offset_of(tp) != committed.end_offset:
                return False
        return True

    def _is_assigned(self, log: GroupLog) -> bool:
        owners = log.owners()
        parts = sorted(number for numbers in owners.values() for number in numbers)
        return parts == [it.partition for it in self.places(INPUT)] and log.is_settled

    # The end

    def run(self) -> None:
        super().run()
        for group in self.groups:
            for tp in self.places(INPUT):
                committed = self.log_of(tp)
                expected = set() if committed is None else {it for it, _ in committed.visible}
                missing = expected - self.consumed.get((group, tp), set())
                if missing:
                    raise Violation(f"{group} has never consumed {sorted(missing)} of {tp}")

    def _state(self) -> str:
        lines = [
            f"{group}: {log.owners()}, settled {log.is_settled}, committed"
            f" {[log.offset_of(tp) for tp in self.places(INPUT)]}"
            for group, log in self.group_logs.of.items()
        ]
        return "\n".join([*lines, super()._state()])


class GroupCoordinatorsEnd(ConsumerGroupsWorld):
    """Nodes that coordinate give way to others, late, and end with commits that are not committed."""

    def faults(self) -> list[Kind]:
        return [self._act_late, self.troubles.isolate, self.troubles.stop]

    def always(self) -> list[Kind]:
        return [self._elect_another, self._kill_an_application]

    def _begin_applications(self) -> None:
        super()._begin_applications()
        self.strike_at_an_append(OFFSETS_STREAM)


class GroupConsumer:
    """A member that consumes what it has."""

    def __init__(
        self, world: ConsumerGroupsWorld, group: str, member: GroupMember, client: KafkaClient
    ) -> None:
        self.member = member
        self._world = world
        self._group = group
        self._log = world.group_logs.of[group]
        self._client = client
        self._positions: dict[TopicPartition, int] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._beats_at_s = 0.0
        self._former: list[tuple[TopicPartition, int, Mark]] = []
        """What it had, up to where it had consumed, and who it was then."""

    async def turn(self) -> None:
        """A heartbeat, if it is due, and a little of what it has."""
        loop = asyncio.get_running_loop()
        try:
            if loop.time() >= self._beats_at_s:
                await self._beat()
                self._beats_at_s = loop.time() + BEAT_S
            for tp in sorted(self.member.owned):
                await self._consume(tp)
            await self._commit_late()
        except NoMember:
            self._forget()
        except (Unanswered, Refused):
            await self._client.pause()
        if not self.member.owned:
            await asyncio.sleep(BEAT_S / 2)

    async def leave(self) -> None:
        """Whoever does not hear of it waits for the end of the session."""
        with suppress(Unanswered, Refused, NoMember):
            await self.member.leave()

    async def _beat(self) -> None:
        member = self.member
        if member.epoch != JOINING and self._world.leaves():
            self._world.troubles.tell(f"{member.member_id} leaves {self._group}")
            self._forget()
            await member.leave()
            return
        await member.beat()
        if member.rejoins and isinstance(member, ClassicMember):
            for tp in sorted(member.owned):
                await self._commit(tp)
            self._forget()
            await member.join_again()
        self._note_former()
        given_up = [tp for tp in sorted(member.owned) if not member.may_keep(tp)]
        for tp in given_up:
            await self._commit(tp)
            self._positions.pop(tp, None)
        if given_up:
            await member.beat()

    def _note_former(self) -> None:
        """A commit of now may come when it is not what it is now."""
        if self._positions and self._world.rng.random() < 0.1:
            tp = self._world.rng.choice(sorted(self._positions))
            self._former.append((tp, self._positions[tp], self.member.mark()))

    async def _commit_late(self) -> None:
        """Of an earlier epoch, which counts no more."""
        if self._former and self._former[0][2].epoch != self.member.epoch != JOINING:
            await self.member.commit_late(*self._former.pop(0))

    def _forget(self) -> None:
        self._positions, self._committed = {}, {}

    async def _consume(self, tp: TopicPartition) -> None:
        world, rng = self._world, self._world.rng
        for known in tuple(self._positions):
            if known not in self.member.owned:
                del self._positions[known]
        if tp not in self._positions:
            since = self._log.place_of_newest(tp)
            offset = await self._offset(tp)
            self._log.look_at_found(tp, offset, since)
            self._positions[tp] = self._committed[tp] = offset
        bytes_max = rng.choice((FEW_BYTES, MANY_BYTES))
        found = await fetched(self._client, tp, self._positions[tp], bytes_max, world.log_of)
        if found is None:
            return
        records, self._positions[tp] = found
        world.consumed.setdefault((self._group, tp), set()).update(it for it, _ in records)
        if rng.random() < 0.5 or not world.goes_on:
            await self._commit(tp)

    async def _offset(self, tp: TopicPartition) -> int:
        member = self.member
        if isinstance(member, ConsumerMember):
            try:
                return await committed_offset(
                    self._client, self._group, tp, (member.member_id, member.epoch)
                )
            except Refused:  # it hears by its next heartbeat why
                self._beats_at_s = 0.0
                raise
        return await committed_offset(self._client, self._group, tp)

    async def _commit(self, tp: TopicPartition) -> None:
        offset = self._positions.get(tp)
        if offset is None or offset == self._committed.get(tp):
            return
        mark, is_done = await self.member.commit(tp, offset)
        if is_done:
            self._log.was_told(tp, Commit(mark, offset))
            self._committed[tp] = offset
        else:
            self._log.doubtful.add(mark)
