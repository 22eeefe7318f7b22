"""Streams by control: what fails half way says what was done, and what may not be seen is not there."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, cast

import pytest

from streamlog.acl.rules import RuleBook
from streamlog.authn.principal import Principal
from streamlog.authn.session import Session
from streamlog.authz.audit import Audit
from streamlog.authz.service import AuthorizationService
from streamlog.config import AuthorizationSection
from streamlog.control.control import Control
from streamlog.control.operation import Caller
from streamlog.control.service import ControlService
from streamlog.control.streams import PartitionTrim
from streamlog.errors import (
    DeletionDenied,
    InvalidRequest,
    InvalidStreamName,
    NotLeader,
    PartlyDone,
    StreamExists,
    StreamNotFound,
    TopicForbidden,
)
from streamlog.metadata.image.metadata_image import StreamImage
from streamlog.metadata.stream.alteration import SettingChange
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.model import TopicPartition
from tests.kafka_node import KafkaNode
from tests.restricted import Asker, rule

ALICE = Session(Principal.user("alice"), "10.0.0.1")


@pytest.fixture
async def node() -> AsyncIterator[KafkaNode]:
    async with KafkaNode() as made:
        yield made


def control(node: KafkaNode, *rules: str, restricted: bool = True) -> Control:
    service = node.context.control_service
    assert service is not None
    book = RuleBook.of(*map(rule, rules))
    authorization = AuthorizationService(
        AuthorizationSection(), lambda: book, Audit(), enforced=restricted
    )
    return Control(service, Caller(ALICE, authorization.access_of(ALICE), by="test"))


class Leaders:
    """Of several partitions; the leader of one is away."""

    def __init__(self, away: int) -> None:
        self.away = away
        self.purged: list[TopicPartition] = []

    async def purge(self, stream: StreamImage, number: int, **_: Any) -> int:
        if number == self.away:
            raise NotLeader("no leader")
        self.purged.append(TopicPartition(stream.name, number))
        return 10


def led_by(service: ControlService | None, leaders: Leaders) -> None:
    assert service is not None
    service.leaders = cast(Any, leaders)


async def test_a_purge_that_fails_half_way_says_what_was_done(
    node: KafkaNode, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "streamlog.audit")
    await node.add_stream("s", partitions=3)
    led_by(node.context.control_service, Leaders(away=2))
    with pytest.raises(
        PartlyDone, match=r"20 messages of partitions \[0, 1\] of 's'.*2: no leader"
    ):
        await control(node, restricted=False).streams.purge("s")
    (line,) = [it for it in caplog.records if it.name == "streamlog.audit"]
    assert (line.getMessage(), vars(line)["act"]) == ("act", "streams.purge")
    led_by(node.context.control_service, Leaders(away=0))
    with pytest.raises(NotLeader):
        await control(node, restricted=False).streams.purge("s")
    assert caplog.records[-1].getMessage() == "attempt", "nothing was done"


async def test_what_is_purged(node: KafkaNode) -> None:
    await node.add_stream("s", partitions=2)
    led_by(node.context.control_service, leaders := Leaders(away=9))
    streams = control(node, restricted=False).streams
    assert (await streams.purge("s", partition=1, before_offset=5)).purged == 10
    assert leaders.purged == [TopicPartition("s", 1)]
    assert (await streams.purge("s", partition=1, before_offset=0)).purged == 0
    with pytest.raises(InvalidRequest, match="name the partition"):
        await streams.purge("s", before_offset=5)
    with pytest.raises(InvalidRequest, match="only one of them"):
        await streams.purge("s", partition=0, before_offset=5, keep=1)


@pytest.mark.parametrize("operation", ["delete", "purge", "describe", "trim", "get", "erase"])
async def test_a_hidden_stream_is_answered_as_one_that_is_not_there(
    node: KafkaNode, operation: str
) -> None:
    await node.add_stream("secret")
    mine = control(node, "describe topic other")
    calls: dict[str, Callable[[str], Awaitable[object]]] = {
        "delete": mine.streams.delete,
        "purge": mine.streams.purge,
        "describe": mine.streams.describe,
        "trim": lambda name: mine.streams.trim(name, 0),
        "get": lambda name: mine.messages.get(name, offset=0),
        "erase": lambda name: mine.messages.delete(name, 0),
    }
    said = []
    for name in ("secret", "absent"):
        with pytest.raises(StreamNotFound) as refused:
            await calls[operation](name)
        said.append(str(refused.value).replace(name, "NAME"))
    assert said[0] == said[1]


async def test_each_act_needs_its_right(node: KafkaNode) -> None:
    await node.add_stream("s")
    led_by(node.context.control_service, Leaders(away=9))
    mine = control(node, "describe topic s")
    config = (await node.metadata.create_stream(StreamConfig.of(name="s")))[0].config
    change = (SettingChange(setting="retention_ms", text="1000"),)
    more = (SettingChange(setting="partitions", text="2"),)
    for act in (
        mine.streams.delete("s"),
        mine.streams.purge("s"),
        mine.streams.trim("s", 0),
        mine.streams.alter("s", change),
        mine.streams.alter("s", more),
        mine.streams.replace("s", config),
        mine.streams.create(StreamConfig.of(name="t")),
        mine.messages.delete("s", 0),
        mine.messages.get("s", offset=0),
    ):
        with pytest.raises(TopicForbidden):
            await act
    allowed = control(node, "alter_configs topic s", "describe topic s")
    assert (await allowed.streams.alter("s", change)).config.retention_ms == 1000
    with pytest.raises(TopicForbidden):
        await allowed.streams.alter("s", (*change, *more))


async def test_partitions_are_trimmed_each_by_itself_and_told_of_in_one_line(
    node: KafkaNode,
) -> None:
    await node.add_stream("s", 3)
    asker = Asker(node.context, "delete topic s", "describe topic t")
    trims = (*(PartitionTrim("s", number) for number in (0, 1, 5)), PartitionTrim("t", 0, 7))
    await node.add_stream("t")
    done = await asker.context.control.streams.trim_partitions(trims)
    asker.close()
    assert [(it.stream, it.partition, it.error) for it in done] == [
        ("s", 0, ""),
        ("s", 1, ""),
        ("s", 5, "PartitionNotFound"),
        ("t", 0, "TopicForbidden"),
    ]
    assert asker.audit.acts == [
        (
            "streams.trim_partitions",
            ("s-0, to the end", "s-1, to the end", "s-5, to the end", "t-0, to 7"),
        ),
    ]


async def test_what_a_stream_denies(node: KafkaNode) -> None:
    await node.add_stream("kept", deny_purge=True, deny_delete=True)
    mine = control(node, restricted=False)
    for act in (
        mine.streams.purge("kept"),
        mine.streams.trim("kept", 0),
        mine.messages.delete("kept", 0),
    ):
        with pytest.raises(DeletionDenied):
            await act
    with pytest.raises(InvalidStreamName):
        await mine.streams.create(StreamConfig.of(name="__consumer_offsets"))


async def test_a_dry_run_creates_nothing_and_finds_what_is_there(node: KafkaNode) -> None:
    mine = control(node, restricted=False)
    config = StreamConfig.of(name="s")
    found = await mine.streams.create(config, validate_only=True)
    assert found.created and found.stream.config == config
    assert "s" not in node.metadata.image.streams
    await mine.streams.create(config)
    assert not (await mine.streams.create(config, validate_only=True)).created
    with pytest.raises(StreamExists):
        await mine.streams.create(config.changed(description="other"), validate_only=True)


@pytest.mark.parametrize(
    ("settings", "rights"),
    [
        ({"mirror": '{"name":"secret"}'}, ("create topic t", "read topic secret")),
        (
            {"subjects": ("t",), "sources": '[{"name":"secret"}]'},
            ("create topic t", "read topic secret"),
        ),
        (
            {"mirror": '{"name":"secret","external":{"api":"$JS.streamlog.API"}}'},
            ("create topic t", "read topic secret", "create cluster kafka-cluster"),
        ),
    ],
)
async def test_origin_needs_the_right_to_read_it(
    node: KafkaNode, settings: dict[str, Any], rights: tuple[str, ...]
) -> None:
    config = StreamConfig.of(name="t", **settings)
    for left_out in rights[1:]:
        allowed = [it for it in rights if it != left_out]
        with pytest.raises((TopicForbidden, StreamNotFound)):  # one that may not be seen
            await control(node, *allowed).streams.create(config, validate_only=True)
    made = await control(node, *rights).streams.create(config, validate_only=True)
    assert made.created
