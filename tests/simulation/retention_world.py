"""Consumers of streams that lose acknowledged messages, or that consumers empty; and consumers that are reset."""

import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

from streamlog.jetstream.consumers import interest_reports
from streamlog.metadata.image.metadata_image import StreamImage
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.model import NO_LEADER, NodeId, TopicPartition
from streamlog.record.offset_set import OffsetSet
from tests.consumer_history import BrokenPromise
from tests.simulation.consumers_node import ConsumersNode
from tests.simulation.consumers_world import (
    MS,
    NAMES,
    STREAMS,
    SUBJECTS,
    ConsumersStory,
    ms_of,
)
from tests.simulation.led_streams import LedMessages, RetentionNode, found_in

RETENTIONS: Final = ("limits", "interest", "workqueue")
LOST_MAX: Final = 8
OVER_MS: Final = 6_000
"""No request, or answer, is under way that long."""


class RetentionStory(ConsumersStory):
    """As ``ConsumersStory``, with leaders of the streams' own partitions."""

    node_type: type[ConsumersNode] = RetentionNode

    def __init__(self, seed: int) -> None:
        choices = random.Random(f"retention of {seed}")
        self.retentions = {name: choices.choice(RETENTIONS) for name in STREAMS}
        self.fails = choices.choice((0.0, 0.2))
        """How often a leader cannot erase what it has hidden."""
        self._deletions = Counter[str]()
        super().__init__(seed)
        self.replaced = [(interest_reports._found, found_in)]

    # Streams

    def _stream_image(self, name: str, partitions: int) -> StreamImage:
        made = super()._stream_image(name, partitions)
        if name not in self.retentions:
            return made
        settings = made.config.model_dump(exclude_unset=True)
        settings["retention"] = self.retentions[name]
        places = tuple(replace(it, leader=NO_LEADER) for it in made.partitions)
        return replace(made, config=StreamConfig.of(**settings), partitions=places)

    def _make_stream(self, name: str) -> None:
        super()._make_stream(name)
        stream = self.image.stream(name)
        for number in range(len(stream.partitions)):
            tp = TopicPartition(name, number)
            self.messages[stream.stream_id, number] = LedMessages(tp, stream.stream_id)
            self._elect_of(name, number)

    def _elect_of(self, name: str, number: int, *, lost_max: int = 0) -> None:
        """One of the nodes leads, which may lack the last messages."""
        stream = self.image.stream(name)
        before = stream.partitions[number]
        able = sorted(it.node_id for it in self.image.nodes.values() if not it.fenced)
        leader = self.rng.choice(able) if able else NO_LEADER
        log = self.messages[stream.stream_id, number]
        assert isinstance(log, LedMessages)
        self.epoch += 1
        log.elect(self.epoch)
        if lost_max and leader != NO_LEADER:
            lost = log.cut(self.rng.randint(max(log.start, log.end - lost_max), log.end))
            if self.rng.random() < 0.5:  # nor does it know of all that was removed
                log.erased.keep_between(0, self.rng.randint(log.start, log.end))
            self.history.lose(lost)
            self.tell(f"{len(lost)} messages of {name} {number} are lost: {log.end} are left")
        self.tell(f"node {leader} leads {name} {number} in epoch {self.epoch}")
        places = list(stream.partitions)
        places[number] = replace(
            before, leader=leader, leader_epoch=self.epoch, partition_epoch=self.epoch
        )
        self._publish_image(self._with(replace(stream, partitions=tuple(places))))

    def _elect_again(self, node_id: NodeId) -> None:
        super()._elect_again(node_id)
        for name in STREAMS:
            stream = self.image.streams.get(name)
            for number, it in enumerate(stream.partitions if stream else ()):
                if it.leader == node_id:
                    self._elect_of(name, number, lost_max=self._lost_max())

    def _lost_max(self) -> int:
        return 0 if self.is_calm or self.rng.random() < 0.7 else LOST_MAX

    def _control(self) -> None:
        for name in STREAMS:
            stream = self.image.streams.get(name)
            for number, it in enumerate(stream.partitions if stream else ()):
                if it.leader == NO_LEADER:
                    self._elect_of(name, number)
        super()._control()

    def _publish(self) -> None:
        rng = self.rng
        logs = [
            log
            for log in self.messages.values()
            if isinstance(log, LedMessages) and log.led is not None and log.led.is_reachable
        ]
        if logs and self.events.now_us < self.calm_us + self.quiet_us:
            log = rng.choice(logs)
            for _ in range(rng.choice((1, 1, 5))):
                subject = f"{log.tp.stream}.{rng.choice(SUBJECTS)}"
                message = log.append(subject, self.events.now_us // MS, _encoded)
                self.history.publish(message, subject)
            waiting, log.waiting = log.waiting, []
            for woken in waiting:
                woken()
            assert log.led is not None
            log.led.tell_soon()
        self.later(rng.choice((50, 200, 600)), self._publish)

    def _remove_some(self) -> None:
        """Not while a leader is elected."""
        place = self.rng.choice(sorted(self.messages)) if self.messages else None
        log = self.messages[place] if place else None
        if isinstance(log, LedMessages):
            gone = [it for it in range(log.start, log.end) if self.rng.random() < 0.1]
            self.tell(f"{gone} of {log.tp} are removed")
            self.history.remove(log.ids[it] for it in gone)
            log.erase(OffsetSet(gone))

    def released(self, log: LedMessages, offsets: OffsetSet, config: StreamConfig) -> None:
        """A leader removes them."""
        released = [log.ids[it] for it in offsets if it < log.end]
        self.tell(f"{log.tp}: consumers are done with {list(offsets)}")
        try:
            self.history.release(
                released,
                stream_id=str(log.stream_id),
                is_queue=config.retention == "workqueue",
            )
        except BrokenPromise as error:
            self.broken = self.broken or error

    # Consumers

    def _config(self, name: str) -> dict[str, Any]:
        config = super()._config(name)
        stream = STREAMS[0] if name in NAMES else STREAMS[1]
        if self.retentions[stream] == "workqueue":
            config |= {"ack_policy": "explicit", "deliver_policy": "all"}
            config.pop("opt_start_seq", None)
            if stream == STREAMS[0]:
                parts = {NAMES[0]: f"{stream}.b.>", NAMES[1]: f"{stream}.a"}
                config["filter_subject"] = parts[name]
        return config

    def _delete_consumer(self) -> None:
        before = self.ask

        def ask(client: Any, verb: str, stream: str, consumer: str, **more: Any) -> None:
            self.history.deletion_asked(consumer)
            self._deletions[consumer] += 1
            self.later(OVER_MS, partial(self._end_deletion, consumer, self._deletions[consumer]))
            before(client, verb, stream, consumer, **more)

        self.ask = ask  # type: ignore[method-assign]
        try:
            super()._delete_consumer()
        finally:
            self.ask = before  # type: ignore[method-assign]

    def _end_deletion(self, name: str, number: int) -> None:
        if number == self._deletions[name]:
            self.history.deletion_is_over(name)

    def _reset_consumer(self) -> None:
        place = self.rng.choice(self.places)
        living = self.history.living(place[1])
        policy = self.configs[place]["deliver_policy"]
        sequence = 0
        if policy == "all":
            sequence = self.rng.choice((0, 1, 3, 10))
        elif policy == "by_start_sequence":
            sequence = self.rng.choice((0, 5, 10))
        if len(living) != 1:
            return
        (meant,) = living
        offset = sequence - 1 if sequence else None
        asked = self.history.reset_asked(place[1], offset)
        self.later(OVER_MS, partial(self.history.reset_is_over, place[1], asked))
        self.tell(f"{meant} is to be reset to {sequence}")

        def answered(found: Any) -> None:
            self.tell(f"{meant} is reset: {found!r}")
            if isinstance(found, Exception):
                self.history.reset_refused(place[1], asked)
            else:
                self.history.reset_done(
                    self.consumer_of(place[1], ms_of(found["created"])), offset, asked
                )

        client = self.rng.choice(list(self.clients.values()))
        self.ask(client, "RESET", *place, fields={"seq": sequence}, answered=answered)

    # What goes wrong

    def faults(self) -> list[Callable[[], None]]:
        return [
            *super().faults(),
            self._lead_elsewhere,
            self._lose,
            self._lose,
            self._reset_consumer,
        ]

    def _lead_elsewhere(self, lost_max: int = 0) -> None:
        name = self.rng.choice(STREAMS)
        stream = self.image.streams.get(name)
        if stream is not None:
            self._elect_of(name, self.rng.randrange(len(stream.partitions)), lost_max=lost_max)

    def _lose(self) -> None:
        self._lead_elsewhere(LOST_MAX)

    # The end

    def _problem(self) -> str:
        problem = super()._problem()
        if problem:
            return problem
        try:
            for name, retention in self.retentions.items():
                if retention != "limits":
                    self._check_removed(name)
        except BrokenPromise as error:
            return str(error)
        return ""

    def _check_removed(self, name: str) -> None:
        stream = self.image.stream(name)
        living = [key for place, key in self.ends.items() if place[0] == name]
        for number in range(len(stream.partitions)):
            log = self.messages[stream.stream_id, number]
            assert isinstance(log, LedMessages)
            there = (log.ids[it.sequence - 1] for it in log.matching((), 0))
            is_queue = self.retentions[name] == "workqueue"
            self.history.check_removed(there, living, is_queue=is_queue)


def _encoded(message: Any) -> bytes:
    return json.dumps(message).encode()
