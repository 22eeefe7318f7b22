"""Stories of Kafka's transactions: producers that die, are replaced or stand still, coordinators and leaders that move,
and readers of committed records on any replica.

Writers write to several partitions at once; each transformer consumes one partition of what they have written, and
produces for each record, with the offset in the same transaction: exactly once, whatever happens.
"""

import asyncio
from functools import partial
from typing import Final

from streamlog.metadata.image.metadata_image import StreamImage
from streamlog.metadata.stream.stream_config import TRANSACTIONS_STREAM
from streamlog.model import TopicPartition
from tests.simulation.checkers import Violation
from tests.simulation.cluster.applications import INPUT, ApplicationsWorld
from tests.simulation.cluster.committed_reader import committed_offset, fetched
from tests.simulation.cluster.kafka_client import KafkaClient
from tests.simulation.cluster.swarm import Kind
from tests.simulation.cluster.transaction_checkers import value_of
from tests.simulation.cluster.transactional_producer import MustAbort
from tests.simulation.publisher import Publisher

OUTPUT: Final = "out"
THINK_S: Final = 0.15
STUCK_S: Final = 4.0
"""Longer than most transactions may be open."""
MANY_BYTES: Final = 1 << 20


class TransactionsWorld(ApplicationsWorld):
    """Writers, transformers and readers."""

    STREAMS = (INPUT, OUTPUT)
    VERSIONS: tuple[int, ...] = (1, 2, 2)
    """Of transactions, as producers speak them."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._are_mixed = self.rng.random() < 0.3
        """Messages come over NATS, too."""
        self.publishers.kinds = [(1, Publisher)]

    def _created_one(self, stream: StreamImage) -> None:
        if self._are_mixed and stream.name == INPUT:
            self.publishers.publish_to(stream)

    def _begin_applications(self) -> None:
        for number in range(self.rng.choice((1, 2, 3))):
            name = f"writer{number}"
            self.begin_application(name, partial(self._write, name))
        for tp in self.places(INPUT):
            name = f"transformer{tp.partition}"
            self.begin_application(name, partial(self._transform, name, tp))
        for number in range(2):
            self.begin_application(f"reader{number}", self._read)

    async def _write(self, name: str, client: KafkaClient) -> None:
        rng = self.rng
        producer = self.producer(client, name, self.rng.choice(self.VERSIONS))
        await producer.init()
        while self.goes_on:
            producer.begin()
            place = 0
            try:
                for _ in range(rng.randint(1, 4)):
                    places = range(place, place + rng.randint(1, 3))
                    values = [value_of(name, producer.number, it) for it in places]
                    place = places.stop
                    await producer.send(rng.choice(self.places(INPUT)), values)
                    await asyncio.sleep(rng.uniform(0, THINK_S))
                if rng.random() < 0.05:
                    await asyncio.sleep(rng.uniform(0, STUCK_S))
                if rng.random() < 0.8:
                    await producer.end(commit=True)
                else:
                    await producer.abort()
            except MustAbort as error:
                self.troubles.tell(f"{name} has to abort: {error}")
                await producer.abort()
            await asyncio.sleep(rng.uniform(0, THINK_S))

    # Consume, transform, produce

    def _route(self, value: str) -> TopicPartition:
        places = self.places(OUTPUT)
        return places[sum(value.encode()) % len(places)]

    async def _transform(self, name: str, tp: TopicPartition, client: KafkaClient) -> None:
        rng = self.rng
        producer = self.producer(client, name, self.rng.choice(self.VERSIONS))
        await producer.init()
        offset = await committed_offset(client, name, tp)
        while not self._is_consumed(tp, offset):
            bytes_max = rng.choice((200, 600, MANY_BYTES))
            found = await fetched(client, tp, offset, bytes_max, self.log_of)
            if found is None or found[1] == offset:
                continue
            records, after = found
            producer.begin()
            try:
                for place, (_, value) in enumerate(records):
                    output = value_of(name, producer.number, place, f">{value}")
                    await producer.send(self._route(value), [output])
                await producer.send_offset(name, tp, after)
                if rng.random() < 0.05:
                    await asyncio.sleep(rng.uniform(0, STUCK_S))
                if rng.random() < 0.1:
                    raise MustAbort("it does not want it")
                await producer.end(commit=True)
            except MustAbort as error:
                self.troubles.tell(f"{name} has to abort: {error}")
                await producer.abort()
                offset = await committed_offset(client, name, tp)
            else:
                offset = after

    def _is_consumed(self, tp: TopicPartition, offset: int) -> bool:
        """Nothing more comes, and all is read."""
        if self.goes_on or not self.are_done("writer") or not self.publishers.done:
            return False
        log = self.log_of(tp)
        return log is None or log.end_offset == log.stable_offset == offset

    # Readers

    async def _read(self, client: KafkaClient) -> None:
        """Of committed records, on any replica; until all is read."""
        rng = self.rng
        offsets = dict.fromkeys([*self.places(INPUT), *self.places(OUTPUT)], 0)
        while not self._is_all_read(offsets):
            tp = rng.choice(list(offsets))
            node_id = rng.choice((None, *sorted(self.hosts)))
            bytes_max = rng.choice((150, 500, MANY_BYTES)) if self.goes_on else MANY_BYTES
            offset = offsets[tp]
            found = await fetched(client, tp, offset, bytes_max, self.log_of, node_id=node_id)
            if found is not None:
                offsets[tp] = found[1]
            if self.goes_on:
                await asyncio.sleep(rng.uniform(0, THINK_S))

    def _is_all_read(self, offsets: dict[TopicPartition, int]) -> bool:
        if self.goes_on or not self.are_done("writer") or not self.are_done("transformer"):
            return False
        logs = [(self.log_of(tp), offset) for tp, offset in offsets.items()]
        return all(log is None or log.end_offset == offset for log, offset in logs)

    # The end

    def run(self) -> None:
        super().run()
        for tp in self.places(INPUT):
            for output in self.places(OUTPUT):
                self._look_at_outputs(tp, output)

    def _look_at_outputs(self, tp: TopicPartition, output: TopicPartition) -> None:
        """One for each record of the input, in its order."""
        name = f"transformer{tp.partition}:"
        outputs = [it for it in self._visible(output) if it.startswith(name)]
        found = [it.partition(">")[2] for it in outputs]
        expected = [it for it in self._visible(tp) if self._route(it) == output]
        if found != expected:
            raise Violation(f"{output}: {name} has made {found}, not {expected}")

    def _visible(self, tp: TopicPartition) -> list[str]:
        log = self.log_of(tp)
        return [] if log is None else [value.rstrip(".") for _, value in log.visible]


class ZombiesReturn(TransactionsWorld):
    """Producers are replaced all the time, and go on after that. Nodes stay."""

    VERSIONS = (1,)

    def faults(self) -> list[Kind]:
        return []

    def always(self) -> list[Kind]:
        return [self._replace_an_application]


class MarkersAreCut(TransactionsWorld):
    """Leaders end with markers that are not committed: when they come back, their logs are cut."""

    def faults(self) -> list[Kind]:
        return [self._cut_a_leader_off, self.troubles.storm, self._act_late]

    def always(self) -> list[Kind]:
        return [self._elect_another, self._kill_an_application]

    def _begin_applications(self) -> None:
        super()._begin_applications()
        self.strike_at_a_marker()


class CoordinatorsEnd(TransactionsWorld):
    """Nodes that coordinate end with decisions that are not committed."""

    def faults(self) -> list[Kind]:
        return [self.troubles.stop, self.troubles.isolate, self._elect_another]

    def always(self) -> list[Kind]:
        return [self._kill_an_application, self._replace_an_application]

    def _begin_applications(self) -> None:
        super()._begin_applications()
        self.strike_at_an_append(TRANSACTIONS_STREAM)
