"""Nodes that coordinate consumers, and their clients, by seed: all goes wrong that can, and then all is calm.

Nodes are killed, stopped beyond their lease, cut off, and act late on the metadata; leaders of the state change while
both nodes live; wall clocks jump; the state's log has too few replicas, or is compacted. Streams are deleted and made
again under their names, and so are consumers. Acknowledgements, pull requests and deliveries are lost, doubled and
overtaken. ``ConsumerHistory`` judges by what clients saw.
"""

import asyncio
import json
import random
import sys
import traceback
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, Final
from unittest.mock import patch
from uuid import UUID

from immutables import Map

from streamlog.condition import FAULT
from streamlog.control.messages.stored_messages import StoredMessage
from streamlog.coordination.keys import partition_of
from streamlog.jetstream.consumers import consumer_coordinator
from streamlog.jetstream.consumers.acks import mark_of
from streamlog.jetstream.consumers.run_delivery import deliver_run
from streamlog.jetstream.errors import ApiRefused
from streamlog.jetstream.requests.request_schemas import CONSUMER_CREATE
from streamlog.metadata.image.metadata_image import (
    MetadataImage,
    NodeImage,
    PartitionImage,
    StreamImage,
)
from streamlog.metadata.stream.stream_config import CONSUMERS_STREAM, StreamConfig
from streamlog.model import NO_LEADER, NodeId, TopicPartition
from tests.consumer_history import (
    BrokenPromise,
    ConsumerHistory,
    ConsumerId,
    MessageId,
    Promises,
    SentAck,
    Tenure,
)
from tests.simulation.checkers import Violation
from tests.simulation.cluster.host import Host
from tests.simulation.cluster.links import Links
from tests.simulation.cluster.machine import simulated
from tests.simulation.consumers_node import (
    SESSION_MS,
    ConsumersNode,
    StateLog,
    StreamMessages,
    deliver_one_by_one,
)
from tests.simulation.events import Events

S: Final = 1_000_000
MS: Final = 1_000
CALM_S: Final = (8, 60)
"""How long clients take what there is, when nothing fails any more: at least, and at most."""
SLACK_MS: Final = 6_000
"""In the end a message that nobody acknowledges is delivered again within that time."""
NODES: Final = (1, 2, 3)
NAMES: Final = ("c", "d")
STREAMS: Final = ("s", "t")
SUBJECTS: Final = ("a", "b.1", "b.2", "b.3", "b.4", "b.5")
NS: Final = 1_000_000
"""Of a millisecond."""


class Ambiguous(Exception):
    """A story that proves nothing."""


class Client:
    """Takes messages of all consumers that it is told of, and acknowledges most."""

    def __init__(self, name: str, world: "ConsumersStory") -> None:
        self.name = name
        self.world = world
        self.home = NodeId(world.rng.choice(NODES))
        self.is_there = True
        self.requests = 0
        self.acks: dict[int, tuple[SentAck, str]] = {}
        """With the stream's name."""
        self.acked = 0

    @property
    def rng(self) -> random.Random:
        return self.world.rng

    def inbox(self) -> str:
        self.requests += 1
        return f"_INBOX.{self.name}.{self.requests}"

    def pull(self) -> None:
        world, rng = self.world, self.rng
        if self.is_there:
            stream, name = rng.choice(world.places)
            body: dict[str, Any] = {"batch": rng.choice((1, 1, 3, 20))}
            kind = rng.random()
            if kind < 0.8:
                body["expires"] = rng.choice((200, 1_000, 3_000)) * MS * 1_000
            elif kind < 0.9:
                body["no_wait"] = True
            inbox = self.inbox()
            world.ask(self, "NEXT", stream, name, inbox=inbox, body=json.dumps(body), copies=True)
        world.later(rng.choice((20, 100, 400)), self.pull)

    def take(self, consumer: ConsumerId, reply: str, message: MessageId) -> None:
        """A message has come."""
        world, rng = self.world, self.rng
        if world.is_poison(consumer, message):
            kinds = [b"-NAK", b"+WPI", b"", b""]
        elif world.is_calm:
            kinds = [b"+ACK"]
        else:
            kinds = [b"+ACK"] * 6 + [
                b"-NAK",
                b'-NAK {"delay": 50000000}',
                b"+WPI",
                b"+TERM",
                b"",
                b"",
                b"+NXT",
            ]
        kind = rng.choice(kinds)
        if not kind:
            return
        wait_ms = rng.choice((0, 1, 5, 50, 400)) if not world.is_calm else 0
        world.later(wait_ms, lambda: self.answer(consumer, reply, message, kind))

    def answer(self, consumer: ConsumerId, reply: str, message: MessageId, kind: bytes) -> None:
        world, rng = self.world, self.rng
        ends = kind in (b"+ACK", b"+TERM", b"+NXT")
        covers = ends and kind != b"+TERM"
        sent = world.history.ack_sent(consumer, message, ends=ends, covers=covers)
        answer = ""
        if kind == b"+NXT":
            answer = self.inbox()
        elif world.is_calm or rng.random() < 0.7:
            self.acked += 1
            self.acks[self.acked] = sent, reply.split(".")[2]
            answer = f"_ACK.{self.name}.{self.acked}"
        for _ in range(rng.choice((1, 1, 1, 2))):
            world.publish_from(self, reply, kind, answer)

    def answered(self, number: int, by: Tenure) -> None:
        self.world.history.confirmed(self.acks[number][0], by=by)


class _Fault:
    """In the place of the condition ``FAULT``: an error that no code expects ends the story."""

    def __init__(self, world: "ConsumersStory") -> None:
        self._world = world

    def logged_as(self, text: str) -> str:
        error = sys.exc_info()[1]
        if not isinstance(error, BrokenPromise | Violation | Ambiguous):
            trace = "".join(traceback.format_exception(error))
            self._world.broken = self._world.broken or Violation(f"{text}: {error!r} {trace}")
        return text


class ConsumersStory:
    """All of it follows from the seed."""

    node_type: type[ConsumersNode] = ConsumersNode

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = rng = random.Random(seed)
        self.story: list[str] = []
        self.events = Events()
        self.links = Links(self.events, rng)
        self.links.weather.loss = rng.choice((0.0, 0.02, 0.15))
        self.links.weather.duplication = rng.choice((0.0, 0.05, 0.2))
        self.links.weather.delay_us_max = rng.choice((10_000, 200_000))
        self.hosts = {NodeId(it): Host(NodeId(it), self.events, rng) for it in NODES}
        self.clients_stay = rng.random() < 0.5
        self.history = ConsumerHistory(clients_stay=self.clients_stay)
        self.away = rng.choice((0.0, 0.02))
        self.is_calm = False
        self.quiet_us = rng.choice((-1, 0, 2)) * S
        """How long before the calm the last message is published, or after it."""
        self.calm_us = rng.choice((6, 10, 16)) * S
        self.poison = rng.choice((7, 9, 10))
        partitions = rng.choice((1, 2))
        self.state_logs = {
            TopicPartition(CONSUMERS_STREAM, it): StateLog(rng) for it in range(partitions)
        }
        self.messages: dict[tuple[UUID, int], StreamMessages] = {}
        self.made = 0
        self.places = [(STREAMS[0], NAMES[0]), (STREAMS[0], NAMES[1]), (STREAMS[1], "e")]
        self.configs = {place: self._config(place[1]) for place in self.places}
        self.clients = {f"k{it}": Client(f"k{it}", self) for it in range(rng.choice((1, 2, 3)))}
        self.images = [MetadataImage("cluster", offset=1)]
        self._heard_us = dict.fromkeys(self.hosts, 0)
        self._returned = dict.fromkeys(self.hosts, 0)
        self._deleted = 0
        """The offset of the last deletion of a stream; no lease is lent to a node that is unaware of it."""
        self._registered = dict.fromkeys(self.hosts, 0)
        self._offsets = dict.fromkeys(self.hosts, 0)
        self._lives = dict.fromkeys(self.hosts, -1)
        self.broken: Exception | None = None
        """A promise is, in the midst of a node's work, which would go on."""
        self._marks: dict[tuple[str, int], int] = {}
        self.epoch = 0
        self.replaced: list[tuple[object, object]] = []
        """Functions of the product, and what is in their place."""
        turns = random.Random(f"turns of {seed}")
        self.turn_s = turns.choice((0.0, 0.0, 0.03, 0.3))
        """How long a coordinator restores no further consumer after each."""
        self.ends: dict[tuple[str, str], ConsumerId] = {}
        """Consumers that are there in the end, by place."""

    @property
    def events_run(self) -> int:
        return self.events.count

    @property
    def image(self) -> MetadataImage:
        return self.images[-1]

    def tell(self, line: str) -> None:
        self.story.append(f"{self.events.now_us / S:9.4f} {line}")

    def later(self, ms: float, call: Callable[[], None]) -> None:
        self.events.after(int(ms * MS), call)

    def run(self) -> None:
        """Raises Violation."""
        replaced: list[tuple[object, object]] = [
            (deliver_run, deliver_one_by_one),
            (FAULT, _Fault(self)),
            (consumer_coordinator._others_turn, self._others_turn),
            *self.replaced,
        ]
        Host.current = Host.latest = None
        try:
            with (
                simulated(self.seed, replaced),
                patch.object(consumer_coordinator, "AT_ONCE", 1 if self.turn_s else 100),
            ):
                self._begin()
                shortest_s, longest_s = CALM_S
                for calm_s in range(shortest_s, longest_s, 2):
                    self._play(self.calm_us + calm_s * S)
                    if not self._problem():
                        break
                else:
                    raise Violation(self._problem())
        except Ambiguous as error:
            self.tell(str(error))
        except BrokenPromise as error:
            raise Violation(str(error)) from error
        finally:
            Host.current = Host.latest = None

    async def _others_turn(self) -> None:
        await asyncio.sleep(self.turn_s)

    def _play(self, until_us: int) -> None:
        while self.events.now_us < until_us:
            self.events.step()
            if self.broken is not None:
                raise self.broken

    def _problem(self) -> str:
        """What is left to be done; empty: all is well."""
        if self.ends.keys() != set(self.places):
            return f"in the end there are {self.ends} alone"
        try:
            self.history.check_the_end(self.ends.values(), self.events.now_us // MS, SLACK_MS)
        except BrokenPromise as error:
            return str(error)
        return ""

    def _begin(self) -> None:
        rng = self.rng
        nodes = Map({it: NodeImage(it, UUID(int=it), "h", it, None) for it in self.hosts})
        state = self._stream_image(CONSUMERS_STREAM, len(self.state_logs))
        self._publish_image(
            replace(self.image, nodes=nodes, streams=Map({CONSUMERS_STREAM: state}))
        )
        for number in range(len(self.state_logs)):
            self._elect(number, NodeId(rng.choice(NODES)))
        for name in STREAMS:
            self._make_stream(name)
        for host in self.hosts.values():
            self._boot(host)
        for client in self.clients.values():
            self._know(client)
            self.later(rng.randint(0, 100), client.pull)
        self.later(200, self._control)
        self.later(rng.randint(1, 50), self._publish)
        for place in self.places:
            self.later(rng.randint(50, 500), partial(self._keep, place))
        self.later(500, self._trouble)
        if rng.random() < 0.3:  # a lease ends, and nothing else does
            self.events.after(self.calm_us - 2 * S, self._cut_off)
        self.events.after(self.calm_us, self._calm)

    # Nodes

    def _boot(self, host: Host) -> None:
        if host.process is not None:
            return
        self.tell(f"node {host.node_id} starts")

        def start() -> None:
            host.start(self.node_type(host, self, self.images[0]))
            for client in self.clients.values():
                if client.is_there:
                    host.process.router.know(client.name.encode(), is_there=True)

        host.run(start)

    def is_cut_off(self, node_id: NodeId) -> bool:
        return self.links.is_cut(node_id, 0) or self.links.is_cut(0, node_id)

    # The controller

    def heard(self, node_id: NodeId, life: int, offset: int) -> tuple[int, bool]:
        """Where the process was registered, and whether a lease is lent. A process that is new leads nothing of
        what the one before led.
        """
        if life < self._lives[node_id]:  # it is long dead
            return 0, False
        self._heard_us[node_id], self._offsets[node_id] = self.events.now_us, offset
        if self._lives[node_id] != life:
            is_first = self._lives[node_id] < 0
            self._lives[node_id] = life
            if not is_first:
                self._elect_again(node_id)
            self._registered[node_id] = self.image.offset
        if self.image.nodes[node_id].fenced:
            self._fence(node_id, is_fenced=False)
            self._returned[node_id] = self.image.offset
        is_aware = offset >= max(self._returned[node_id], self._deleted)
        return self._registered[node_id], is_aware

    def _control(self) -> None:
        for node_id, heard_us in self._heard_us.items():
            silent_ms = (self.events.now_us - heard_us) // MS
            if silent_ms > SESSION_MS and not self.image.nodes[node_id].fenced:
                self._fence(node_id, is_fenced=True)
                self._elect_again(node_id)
        state = self.image.stream(CONSUMERS_STREAM)
        for number, it in enumerate(state.partitions):
            if it.leader == NO_LEADER:
                self._elect_any(number)
        self.later(100, self._control)

    def _fence(self, node_id: NodeId, *, is_fenced: bool) -> None:
        self.tell(f"node {node_id} is {'fenced' if is_fenced else 'back'}")
        node = replace(self.image.nodes[node_id], fenced=is_fenced)
        self._publish_image(replace(self.image, nodes=self.image.nodes.set(node_id, node)))

    def _elect_again(self, node_id: NodeId) -> None:
        """What it led."""
        for number, it in enumerate(self.image.stream(CONSUMERS_STREAM).partitions):
            if it.leader == node_id:
                self._elect_any(number)

    def _elect_any(self, number: int) -> None:
        able = [it.node_id for it in self.image.nodes.values() if not it.fenced]
        self._elect(number, self.rng.choice(sorted(able)) if able else NO_LEADER)

    def _elect(self, number: int, leader: NodeId) -> None:
        self.epoch += 1
        self.history.failures += 1
        self.tell(f"node {leader} leads {number} in epoch {self.epoch}")
        self.state_logs[TopicPartition(CONSUMERS_STREAM, number)].elect(self.epoch)
        stream = self.image.stream(CONSUMERS_STREAM)
        partitions = list(stream.partitions)
        partitions[number] = replace(
            partitions[number], leader=leader, leader_epoch=self.epoch, partition_epoch=self.epoch
        )
        self._publish_image(self._with(replace(stream, partitions=tuple(partitions))))

    def _with(self, stream: StreamImage) -> MetadataImage:
        return replace(self.image, streams=self.image.streams.set(stream.name, stream))

    def _publish_image(self, image: MetadataImage) -> None:
        self.images.append(replace(image, offset=self.image.offset + 1))

    # Streams and their messages

    def _stream_image(self, name: str, partitions: int) -> StreamImage:
        self.made += 1
        partition = PartitionImage((NodeId(1),), NodeId(1), 0, (NodeId(1),), 0)
        config = (
            StreamConfig.of(
                name=name, subjects=(f"{name}.>",), partitions=partitions, partition_by="tokens:2"
            )
            if not name.startswith("_") and partitions > 1
            else StreamConfig.of(
                name=name,
                subjects=() if name.startswith("_") else (f"{name}.>",),
                partitions=partitions,
            )
        )
        return StreamImage(config, UUID(int=self.made), 0, (partition,) * partitions)

    def _make_stream(self, name: str) -> None:
        partitions = 1 if name == STREAMS[0] else self.rng.choice((1, 2))
        stream = self._stream_image(name, partitions)
        for number in range(partitions):
            self.messages[stream.stream_id, number] = StreamMessages()
        self.tell(f"stream {name} is made: {stream.stream_id}")
        self._publish_image(self._with(stream))

    def _delete_stream(self, name: str) -> None:
        """It is made again once no node with a lease is unaware of its end."""
        stream = self.image.streams.get(name)
        if stream is None:
            return
        self.tell(f"stream {name} is deleted")
        for number in range(len(stream.partitions)):
            del self.messages[stream.stream_id, number]
        self._publish_image(replace(self.image, streams=self.image.streams.delete(name)))
        offset = self._deleted = self.image.offset

        def make() -> None:
            if any(
                self._offsets[it.node_id] < offset and not it.fenced
                for it in self.image.nodes.values()
            ):
                self.later(100, make)
                return
            self.history.deleted(self.history.of_stream(str(stream.stream_id)))
            self.later(self.rng.choice((0, 300)), lambda: self._make_stream(name))

        make()

    def _publish(self) -> None:
        rng = self.rng
        streams = [
            it for it in (self.image.streams.get(name) for name in STREAMS) if it is not None
        ]
        if streams and self.events.now_us < self.calm_us + self.quiet_us:
            stream = rng.choice(streams)
            for _ in range(rng.choice((1, 1, 5))):
                number = rng.randrange(len(stream.partitions))
                found = self.messages[stream.stream_id, number]
                message = MessageId(str(stream.stream_id), number, found.end)
                subject = f"{stream.name}.{rng.choice(SUBJECTS)}"
                stored = StoredMessage(
                    subject,
                    found.end + 1,
                    self.events.now_us // MS,
                    b"",
                    json.dumps(message).encode(),
                )
                found.messages.append(stored)
                self.history.publish(message, subject)
                waiting, found.waiting = found.waiting, []
                for woken in waiting:
                    woken()
        self.later(rng.choice((50, 200, 600)), self._publish)

    def _remove_some(self) -> None:
        """By a purge, or one by one."""
        if not self.messages:
            return
        place = self.rng.choice(sorted(self.messages))
        found, number = self.messages[place], place[1]
        if self.rng.random() < 0.5:
            before, found.start = found.start, self.rng.randint(found.start, found.end)
            gone = list(range(before, found.start))
        else:
            gone = [it for it in range(found.start, found.end) if self.rng.random() < 0.1]
            for offset in gone:
                found.messages[offset] = None
        self.tell(f"{len(gone)} messages of {place} are removed")
        self.history.remove(MessageId(str(place[0]), number, it) for it in gone)

    def is_poison(self, consumer: ConsumerId, message: MessageId) -> bool:
        """No client ends it. It must not hold up all others for ever."""
        config = next(self.configs[it] for it in self.places if it[1] == consumer.name)
        if config["max_ack_pending"] > 100:
            return message.offset % 10 >= self.poison
        is_passed_by = config["max_deliver"] > 0 and config["max_ack_pending"] > 1
        return is_passed_by and message.offset % 10 == self.poison

    # Consumers

    def _config(self, name: str) -> dict[str, Any]:
        rng = self.rng
        policy = rng.choice(("all", "all", "all", "new", "by_start_sequence", "last_per_subject"))
        config: dict[str, Any] = {
            "durable_name": name,
            "ack_policy": rng.choice(("explicit", "explicit", "all")),
            "ack_wait": rng.choice((300, 1_000)) * NS,
            "max_deliver": rng.choice((-1, -1, 2, 4)),
            "max_ack_pending": rng.choice((1, 1, 5, 1_000)),
            "deliver_policy": policy,
        }
        if policy == "by_start_sequence":
            config["opt_start_seq"] = rng.choice((1, 4))
        if policy == "last_per_subject" or rng.random() < 0.3:
            stream = STREAMS[0] if name in NAMES else STREAMS[1]
            config["filter_subject"] = rng.choice((f"{stream}.>", f"{stream}.b.>"))
        if rng.random() < 0.4:
            config["deliver_subject"] = f"_INBOX.k0.push-{name}"
        return config

    def _keep(self, place: tuple[str, str]) -> None:
        """Ask for it again and again: it is there, or is made."""
        self._ask_for(place)
        self.later(self.rng.choice((400, 1_500)), partial(self._keep, place))

    def _ask_for(self, place: tuple[str, str]) -> None:
        config = self.configs[place]
        asked = {"stream_name": place[0], "config": config}
        client = self.rng.choice(list(self.clients.values()))
        lasts = dict[tuple[int, str], int]()
        stream_id = self._stream_id(place[0])
        if config["deliver_policy"] == "last_per_subject":
            lasts = self._lasts(place[0], config.get("filter_subject", "").removesuffix(">"))
        self.ask(
            client,
            "CREATE",
            *place,
            fields=CONSUMER_CREATE.read(asked, strict=False),
            answered=lambda found: self._is_there(place, config, found, lasts, stream_id),
        )

    def _stream_id(self, name: str) -> str:
        """Empty: there is none."""
        stream = self.image.streams.get(name)
        return "" if stream is None else str(stream.stream_id)

    def _lasts(self, name: str, prefix: str) -> dict[tuple[int, str], int]:
        """The last message of each subject now."""
        stream = self.image.streams.get(name)
        if stream is None:
            return {}
        return {
            (number, it.subject): it.sequence - 1
            for number in range(len(stream.partitions))
            for it in self.messages[stream.stream_id, number].matching((), 0)
            if it.subject.startswith(prefix)
        }

    def _is_there(
        self,
        place: tuple[str, str],
        config: dict[str, Any],
        found: Any,
        lasts: dict[tuple[int, str], int],
        stream_id: str,
    ) -> None:
        if isinstance(found, Exception):
            self.tell(f"{place}: {found!r}")
            return
        for host in self.hosts.values():
            if host.process is not None:
                host.process.check_counts()
        key = self.consumer_of(place[1], ms_of(found["created"]))
        known = self.history.consumers().get(key)
        if known is None:
            self.tell(f"{key} of {place} is there: {found['created']}")
            known = Promises(
                filter=config.get("filter_subject", "").removesuffix(">"),
                start_offset=config.get("opt_start_seq", 1) - 1,
                start_is_known=config["deliver_policy"] in ("all", "by_start_sequence"),
                max_deliver=config["max_deliver"],
                max_ack_pending=config["max_ack_pending"],
                acks_all=config["ack_policy"] == "all",
                lasts=lasts,
                asked_of=stream_id if stream_id == self._stream_id(place[0]) else "",
                partitions=1 if place[0] == STREAMS[0] else 2,
            )
        if self.events.now_us > self.calm_us + S:
            known.stream_id = str(self.image.stream(place[0]).stream_id)
            self.ends[place] = key
        self.history.created(key, known)

    def _delete_consumer(self) -> None:
        place = self.rng.choice(self.places)
        client = self.rng.choice(list(self.clients.values()))
        meant = self.history.living(place[1])

        def answered(found: Any) -> None:
            self.tell(f"{place} is deleted: {found!r}")
            is_unknown = isinstance(found, ApiRefused) and found.error.err_code == 10014
            if is_unknown or not isinstance(found, Exception):
                self.history.deleted(meant)
                if self.rng.random() < 0.6:  # what was delivered before is acknowledged after
                    self._ask_for(place)

        self.tell(f"{place} is to be deleted")
        self.ask(client, "DELETE", *place, answered=answered)

    # Between clients and nodes

    def ask(
        self,
        client: Client,
        verb: str,
        stream: str,
        consumer: str,
        *,
        answered: Callable[[Any], None] = lambda _: None,
        copies: bool = False,
        **more: Any,
    ) -> None:
        """A request of the API, at the client's node. ``copies``: it may come twice."""
        host = self.hosts[client.home]

        def back(found: Any) -> None:
            self.links.carry(host.node_id, 0, lambda: answered(found), once=True)

        def arrive() -> None:
            node = host.process
            if node is not None:
                node.after(0, lambda: node.ask(verb, stream, consumer, back, **more))

        self.links.carry(0, host.node_id, arrive, once=not copies)

    def publish_from(self, client: Client, subject: str, payload: bytes, reply: str) -> None:
        """To the client's node, and from there to all others."""
        home = self.hosts[client.home]

        def arrive(host: Host) -> None:
            node = host.process
            if node is not None:
                node.after(0, lambda: node.hear(subject, payload, reply))

        def spread() -> None:
            arrive(home)
            for host in self.hosts.values():
                if host is not home:
                    self.links.carry(home.node_id, host.node_id, partial(arrive, host))

        self.links.carry(0, home.node_id, spread)

    def tenure_of(self, node: ConsumersNode, stream: str) -> Tenure:
        number = partition_of(stream, len(self.state_logs))
        replica = node.replicas[TopicPartition(CONSUMERS_STREAM, number)]
        return Tenure(node.host.node_id, node.host.life, replica.leader_epoch)

    def emitted(
        self, node: ConsumersNode, inbox: str, subject: str, payload: bytes, reply: str
    ) -> None:
        """A delivery leaves a node."""
        try:
            self._emitted(node, inbox, subject, payload, reply)
        except (BrokenPromise, Violation, Ambiguous) as error:
            self.broken = self.broken or error

    def _emitted(
        self, node: ConsumersNode, inbox: str, subject: str, payload: bytes, reply: str
    ) -> None:
        message = message_of(payload)
        tenure = self.tenure_of(node, subject.partition(".")[0])
        self.tell(f"{tenure}: {message[1:]} to {inbox} as {reply}")
        _, _, stream, name, *_ = reply.split(".")
        consumer = self.consumer_of(name, node.made_ms(stream, name))
        self.history.emitted(consumer, reply, message, subject, tenure, self.events.now_us // MS)
        client = self.clients[inbox.split(".")[1]]
        self.links.carry(node.host.node_id, 0, lambda: client.take(consumer, reply, message))

    def consumer_of(self, name: str, made_ms: int) -> ConsumerId:
        """Where two have one name and one mark, nobody can tell whose acknowledgement comes: the story ends."""
        known = self._marks.setdefault((name, mark_of(made_ms)), made_ms)
        if known != made_ms:
            raise Ambiguous(f"{name} of {known} and {made_ms}")
        return ConsumerId(name, made_ms)

    def told(self, node: ConsumersNode, subject: str, payload: bytes, block: bytes) -> None:
        """A status, or the answer to an acknowledgement."""
        kind, name, number = subject.split(".")
        if kind == "_ACK":
            client = self.clients[name]
            by = self.tenure_of(node, client.acks[int(number)][1])
            self.links.carry(node.host.node_id, 0, lambda: client.answered(int(number), by))

    def _know(self, client: Client) -> None:
        """Nodes learn, one after the other, whether it is there."""
        for host in self.hosts.values():

            def know(host: Host = host) -> None:
                if host.process is not None:
                    host.process.router.know(client.name.encode(), is_there=client.is_there)

            self.later(self.rng.choice((0, 5, 100)), know)

    # What goes wrong

    def faults(self) -> list[Callable[[], None]]:
        found: list[Callable[[], None]] = [
            self._kill, self._kill, self._stop, self._stop, self._cut_off, self._act_late,
            self._jump, self._fill, self._compact, self._remove_some, self._delete_consumer,
            self._move, self._hand_over, self._hand_over,
        ]  # fmt: skip
        if not self.clients_stay:
            found += [self._leave, self._leave]
        if self.rng.random() < 0.3:
            found.append(lambda: self._delete_stream(self.rng.choice(STREAMS)))
        return found

    def _trouble(self) -> None:
        if self.is_calm:
            return
        rng = self.rng
        faults = self.faults()
        rng.choice(faults)()
        self.later(rng.choice((50, 300, 1_000)), self._trouble)

    def _host(self) -> Host:
        """Mostly one that coordinates."""
        leaders = [it.leader for it in self.image.stream(CONSUMERS_STREAM).partitions]
        if self.rng.random() < 0.7 and NO_LEADER not in leaders:
            return self.hosts[self.rng.choice(leaders)]
        return self.hosts[NodeId(self.rng.choice(NODES))]

    def _kill(self) -> None:
        host = self._host()
        if host.process is not None:
            self.tell(f"node {host.node_id} is killed")
            host.kill()
            self.later(self.rng.choice((100, 1_000, 5_000)), lambda: self._boot(host))

    def _stop(self) -> None:
        host = self._host()
        if host.process is not None and not host.is_stopped:
            self.tell(f"node {host.node_id} is stopped")
            host.stop()
            self.later(self.rng.choice((200, 2_000, 4_500)), host.resume)

    def _cut_off(self) -> None:
        host = self._host()
        self.tell(f"node {host.node_id} is cut off")
        others = [it for it in (0, *self.hosts) if it != host.node_id]
        self.links.isolate(host.node_id, others)
        self.later(self.rng.choice((200, 2_000, 4_500)), self.links.heal)

    def _act_late(self) -> None:
        host = self._host()
        self.tell(f"node {host.node_id} acts late")
        host.late_us = self.events.now_us + self.rng.choice((100, 1_000)) * MS

    def _jump(self) -> None:
        host, by_ms = self._host(), self.rng.choice((-60_000, -500, 700, 3_600_000))
        self.tell(f"the clock of node {host.node_id} jumps by {by_ms} ms")
        host.clock.jump(by_ms)

    def _fill(self) -> None:
        log = self.rng.choice(list(self.state_logs.values()))
        log.is_full = True
        self.tell("too few replicas")

        def end() -> None:
            log.is_full = False

        self.later(self.rng.choice((100, 1_500)), end)

    def _compact(self) -> None:
        for log in self.state_logs.values():
            log.compact()

    def _hand_over(self) -> None:
        """Another node leads, although the one before lives."""
        number = self.rng.randrange(len(self.state_logs))
        self._elect_any(number)

    def _leave(self) -> None:
        client = self.rng.choice(list(self.clients.values()))
        client.is_there = False
        self._know(client)

        def come() -> None:
            client.is_there = True
            self._know(client)

        self.later(self.rng.choice((50, 1_000)), come)

    def _move(self) -> None:
        client = self.rng.choice(list(self.clients.values()))
        client.home = NodeId(self.rng.choice(NODES))

    def _calm(self) -> None:
        """Nothing fails any more."""
        self.tell("calm")
        self.is_calm = True
        self.away = 0.0
        self.links.heal()
        self.links.weather.loss = 0.0
        for host in self.hosts.values():
            host.late_us = 0
            if host.is_stopped:
                host.resume()
            self._boot(host)
        for log in self.state_logs.values():
            log.is_full = False
        for client in self.clients.values():
            client.is_there = True
            self._know(client)


class CoordinatorsChange(ConsumersStory):
    """All nodes live, and some hear late that others coordinate."""

    def faults(self) -> list[Callable[[], None]]:
        return [self._hand_over, self._act_late, self._act_late, self._move]


def message_of(payload: bytes) -> MessageId:
    return MessageId(*json.loads(payload))


def ms_of(time: str) -> int:
    found = datetime.fromisoformat(time.replace("Z", "+00:00"))
    return round(found.timestamp() * 1_000)
