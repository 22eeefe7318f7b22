"""What topics and the node are set to: told and altered over a socket, in every version offered."""

from typing import Any

import pytest

from streamlog.config import Settings
from streamlog.errors import NoController
from streamlog.kafka.config_entries import shown_node_configs
from streamlog.metadata.stream.inert_configs import INERT_CONFIGS
from streamlog.metadata.stream.settings_translation import SETTINGS
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.model import NodeId
from streamlog.wire.registry import ALTER_CONFIGS, DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS
from tests.fake_partition import NODE
from tests.kafka_node import KafkaNode
from tests.raw_client import RawClient

TOPIC, BROKER, LOGGER = 2, 4, 8
SET, DELETE, APPEND, SUBTRACT = range(4)
OWN, NODES, DEFAULT = 1, 4, 5


async def ask(node: KafkaNode, key: int, version: int, request: dict[str, Any]) -> Any:
    async with RawClient(node.port) as client:
        return await client.ask(key, version, request)


async def add(node: KafkaNode, **settings: Any) -> StreamConfig:
    config = StreamConfig.of(**{"name": "flights", **settings})
    await node.metadata.create_stream(config)
    return config


def resource(kind: int, name: str, **more: Any) -> dict[str, Any]:
    return {"resource_type": kind, "resource_name": name, **more}


async def describe(
    node: KafkaNode, kind: int, name: str, *keys: str, version: int = 4, synonyms: bool = True
) -> Any:
    asked = resource(kind, name, configuration_keys=list(keys) or None)
    request = {
        "resources": [asked],
        "include_synonyms": synonyms,
        "include_documentation": True,
    }
    (result,) = (await ask(node, DESCRIBE_CONFIGS, version, request))["results"]
    assert (result["resource_type"], result["resource_name"]) == (kind, name)
    return result


def by_name(result: Any) -> dict[str, Any]:
    assert result["error_code"] == 0
    return {config["name"]: config for config in result["configs"]}


@pytest.mark.parametrize("version", range(1, 5))
async def test_topic_configs_are_told(node: KafkaNode, version: int) -> None:
    await add(node, subjects=("a.*", "b"), retention_ms=60_000, segment_bytes=65_536)
    configs = by_name(await describe(node, TOPIC, "flights", version=version))
    known = {row.kafka for row in SETTINGS if row.kafka is not None}
    assert set(configs) == known | set(INERT_CONFIGS)
    values = {
        "subject": ("a.*,b", OWN),
        "retention.ms": ("60000", OWN),
        "retention.bytes": ("-1", DEFAULT),
        "streamlog.duplicate_window_ms": ("60000", DEFAULT),
        "segment.bytes": ("65536", OWN),
        "max.message.bytes": ("1048576", DEFAULT),
        "min.insync.replicas": ("1", DEFAULT),
        "unclean.leader.election.enable": ("false", DEFAULT),
        "cleanup.policy": ("delete", DEFAULT),
        "streamlog.sync": ("commit", DEFAULT),
    }
    for name, told in values.items():
        assert (configs[name]["value"], configs[name]["config_source"]) == told, name
    assert not any(it["read_only"] or it["is_sensitive"] for it in configs.values())
    synonyms = configs["segment.bytes"]["synonyms"]
    assert [(it["name"], it["value"], it["source"]) for it in synonyms] == [
        ("segment.bytes", "65536", OWN),
        ("log.segment.bytes", str(8 * 2**20), NODES),
        ("log.segment.bytes", str(256 * 2**20), DEFAULT),
    ]
    if version >= 3:
        kinds = {name: it["config_type"] for name, it in configs.items()}
        assert (kinds["retention.ms"], kinds["subject"], kinds["segment.bytes"]) == (5, 7, 3)
        assert kinds["unclean.leader.election.enable"] == 1
        assert kinds["min.cleanable.dirty.ratio"] == 6
        assert all(it["documentation"] for it in configs.values())


async def test_what_the_stream_leaves_open_is_the_nodes(node: KafkaNode) -> None:
    await add(node)
    configs = by_name(await describe(node, TOPIC, "flights", "segment.bytes", "no.such", "subject"))
    assert set(configs) == {"segment.bytes", "subject"}
    assert configs["segment.bytes"]["value"] == str(8 * 2**20)
    assert configs["segment.bytes"]["config_source"] == NODES
    assert (configs["subject"]["value"], configs["subject"]["config_source"]) == (
        "flights",
        DEFAULT,
    )


async def test_no_more_is_told_than_is_asked_for(node: KafkaNode) -> None:
    await add(node)
    request = {
        "resources": [resource(TOPIC, "flights", configuration_keys=[])],
        "include_synonyms": False,
        "include_documentation": False,
    }
    (result,) = (await ask(node, DESCRIBE_CONFIGS, 4, request))["results"]
    known = sum(row.kafka is not None for row in SETTINGS) + len(INERT_CONFIGS)
    assert len(result["configs"]) == known
    assert all(it["synonyms"] == [] for it in result["configs"])
    assert all(it["documentation"] is None for it in result["configs"])


@pytest.mark.parametrize("version", range(1, 5))
async def test_node_configs_are_told(node: KafkaNode, version: int) -> None:
    configs = by_name(await describe(node, BROKER, str(NODE), version=version))
    values = {
        "broker.id": (str(NODE), NODES),
        "broker.rack": ("r1", NODES),
        "log.dirs": (str(node.directory), NODES),
        "log.segment.bytes": (str(8 * 2**20), NODES),
        "log.roll.ms": (str(7 * 86_400_000), DEFAULT),
        "controller.quorum.voters": ("", DEFAULT),
        "leader.imbalance.check.interval.seconds": ("30", DEFAULT),
        "auto.leader.rebalance.enable": ("true", DEFAULT),
        "auto.create.topics.enable": ("false", DEFAULT),
        "advertised.listeners": (f"PLAINTEXT://{node.address}", NODES),
    }
    for name, told in values.items():
        assert (configs[name]["value"], configs[name]["config_source"]) == told, name
    assert all(it["read_only"] for it in configs.values())
    assert by_name(await describe(node, BROKER, "", version=version)) == {}


def test_no_secret_of_a_node_is_told(tmp_path: Any) -> None:
    settings = Settings.model_validate(
        {"node": {"data_dir": tmp_path}, "nats": {"password": "hush", "token": "hush"}}
    )
    told = [config.told(synonyms=True, documentation=True) for config in
            shown_node_configs(settings, ("h", 1))]  # fmt: skip
    assert "hush" not in str(told)


@pytest.mark.parametrize(
    ("kind", "name", "code", "message"),
    [
        (TOPIC, "nowhere", 3, "no stream 'nowhere'"),
        (TOPIC, "", 3, "no stream ''"),
        (BROKER, "8", 42, "ask node '8'"),
        (BROKER, "seven", 42, "ask node"),
        (LOGGER, "7", 42, "resource type 8"),
        (0, "flights", 42, "resource type 0"),
    ],
)
async def test_what_has_no_configs(
    node: KafkaNode, kind: int, name: str, code: int, message: str
) -> None:
    await add(node)
    result = await describe(node, kind, name)
    assert (result["error_code"], result["configs"]) == (code, [])
    assert message in result["error_message"]


def entry(name: str, value: str | None, operation: int = SET) -> dict[str, Any]:
    return {"name": name, "value": value, "config_operation": operation}


async def alter(
    node: KafkaNode, *configs: dict[str, Any], key: int = INCREMENTAL_ALTER_CONFIGS,
    version: int = 1, name: str = "flights", kind: int = TOPIC, validate_only: bool = False,
) -> tuple[int, str | None]:  # fmt: skip
    asked = resource(kind, name, configs=list(configs))
    request = {"resources": [asked], "validate_only": validate_only}
    (answer,) = (await ask(node, key, version, request))["responses"]
    assert (answer["resource_type"], answer["resource_name"]) == (kind, name)
    return answer["error_code"], answer["error_message"]


def config_of(node: KafkaNode) -> StreamConfig:
    return node.metadata.image.stream("flights").config


@pytest.mark.parametrize("version", [0, 1])
async def test_some_configs_are_altered(node: KafkaNode, version: int) -> None:
    before = await add(node, segment_bytes=65_536, retention_bytes=9, metadata={"team": "x"})
    told = await alter(
        node,
        entry("retention.ms", "60000"),
        entry("segment.bytes", None, DELETE),
        entry("subject", "other.>, more", APPEND),
        version=version,
    )
    assert told == (0, None)
    after = config_of(node)
    assert after == before.changed(
        retention_ms=60_000,
        segment_bytes=None,
        subjects=("flights", "other.>", "more"),
        duplicate_window_ms=60_000,
    )
    assert await alter(node, entry("subject", "flights,more", SUBTRACT)) == (0, None)
    assert config_of(node).subjects == ("other.>",)
    assert await alter(node, entry("subject", None, DELETE)) == (0, None)
    assert config_of(node).subjects == ("flights",)
    assert await alter(node, entry("retention.ms", None, DELETE)) == (0, None)
    assert config_of(node).duplicate_window_ms == 120_000
    assert config_of(node).metadata == {"team": "x"}


@pytest.mark.parametrize("key", [ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS])
async def test_configs_without_effect_are_told_as_they_were_set(node: KafkaNode, key: int) -> None:
    await add(node)
    configs = by_name(await describe(node, TOPIC, "flights"))
    assert (configs["flush.ms"]["value"], configs["flush.ms"]["config_source"]) == (
        str(2**63 - 1),
        DEFAULT,
    )
    given = (
        entry("flush.ms", "1000"),
        entry("compression.type", "uncompressed"),
        entry("min.insync.replicas", "7"),
        entry("follower.replication.throttled.replicas", "0:1"),
    )
    assert await alter(node, *given, key=key) == (0, None)
    configs = by_name(await describe(node, TOPIC, "flights"))
    for it in given:
        told = configs[it["name"]]
        assert (told["value"], told["config_source"]) == (it["value"], OWN)
    assert [it["value"] for it in configs["flush.ms"]["synonyms"]] == ["1000", str(2**63 - 1)]
    kinds = {name: it["config_type"] for name, it in configs.items()}
    assert (kinds["flush.ms"], kinds["segment.index.bytes"], kinds["preallocate"]) == (5, 3, 1)
    if key == ALTER_CONFIGS:
        assert await alter(node, key=key) == (0, None)
        assert config_of(node) == StreamConfig.of(name="flights")
        return
    name = "follower.replication.throttled.replicas"
    assert await alter(node, entry(name, "1:1,0:1", APPEND)) == (0, None)
    assert config_of(node).inert_configs[name] == "0:1,1:1"
    assert await alter(node, entry(name, "0:1", SUBTRACT)) == (0, None)
    assert config_of(node).inert_configs[name] == "1:1"
    assert await alter(node, entry(name, None, DELETE), entry("flush.ms", None, DELETE)) == (
        0,
        None,
    )
    assert config_of(node).inert_configs == {}


async def test_a_window_that_was_named_is_kept_as_far_as_may_be(node: KafkaNode) -> None:
    await add(node, duplicate_window_ms=90_000)
    assert await alter(node, entry("retention.ms", "100000")) == (0, None)
    assert config_of(node).duplicate_window_ms == 90_000
    assert await alter(node, entry("retention.ms", "80000")) == (0, None)
    assert config_of(node).duplicate_window_ms == 80_000
    code, message = await alter(node, entry("streamlog.duplicate_window_ms", "80001"))
    assert code == 40
    assert "retention_ms" in str(message)


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_all_configs_are_altered_but_those_that_kafka_has_not(
    node: KafkaNode, version: int
) -> None:
    await add(
        node, subjects=("a.>",), retention_ms=60_000, acks="leader", segment_bytes=65_536,
        min_isr=1, description="x",
    )  # fmt: skip
    told = await alter(
        node, entry("max.message.bytes", "100"), entry("streamlog.acks", "none"),
        key=ALTER_CONFIGS, version=version,
    )  # fmt: skip
    assert told == (0, None)
    assert config_of(node) == StreamConfig.of(
        name="flights", subjects=("a.>",), message_bytes_max=100, acks="none", description="x"
    )


@pytest.mark.parametrize("key", [ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS])
async def test_only_validating_alters_nothing(node: KafkaNode, key: int) -> None:
    await add(node)
    before = node.metadata.image
    good, bad = entry("retention.ms", "60000"), entry("retention.ms", "1")
    assert await alter(node, good, key=key, validate_only=True) == (0, None)
    code, message = await alter(node, bad, key=key, validate_only=True)
    assert (code, "retention_ms" in str(message)) == (40, True)
    assert await alter(node, good, key=key, name="nowhere", validate_only=True) == (
        3,
        "there is no stream 'nowhere'",
    )
    assert node.metadata.image is before


@pytest.mark.parametrize("key", [ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS])
@pytest.mark.parametrize(
    ("config", "code", "message"),
    [
        (entry("no.such.config", "1"), 40, "there are cleanup.policy, "),
        (entry("", "1"), 40, "Unknown topic config name: ;"),
        (
            entry("message.format.version", "3.0"),
            40,
            "Unknown topic config name: message.format.version",
        ),
        (entry("retention_ms", "1000"), 40, "Unknown topic config name: retention_ms"),
        (entry("retention.ms", "soon"), 40, "retention.ms: 'soon'"),
        (entry("retention.ms", ""), 40, "retention.ms: ''"),
        (entry("retention.ms", "0"), 40, "at least 100"),
        (entry("retention.ms", "-2"), 40, "retention_ms"),
        (entry("retention.bytes", "0"), 40, "retention_bytes: 0 is not a limit"),
        (entry("segment.bytes", "1"), 40, "segment_bytes"),
        (entry("min.insync.replicas", "0"), 40, "min_isr"),
        (entry("flush.ms", "-1"), 40, "for configuration flush.ms: Value must be at least 0"),
        (entry("flush.messages", "0"), 40, "Value must be at least 1"),
        (entry("flush.messages", "many"), 40, "Not a number of type LONG"),
        (entry("segment.index.bytes", "2147483648"), 40, "no more than 2147483647"),
        (entry("compression.gzip.level", "10"), 40, "no more than 9"),
        (entry("preallocate", "yes"), 40, "either true or false"),
        (
            entry("remote.log.copy.disable", "true"),
            40,
            "copies to the object store cannot be paused",
        ),
        (entry("leader.replication.throttled.replicas", "1:"), 40, "partition:node"),
        (entry("cleanup.policy", "tidy"), 40, "cleanup_policy"),
        (entry("min.cleanable.dirty.ratio", "1.5"), 40, "min_cleanable_dirty_ratio"),
        (entry("max.compaction.lag.ms", "0"), 40, "0 is not a limit"),
        (entry("compression.type", "rar"), 40, "compression"),
        (entry("unclean.leader.election.enable", "yes"), 40, "'yes'"),
        (entry("subject", "a..b"), 40, "a..b"),
        (entry("subject", "$JS.API.>"), 40, "jetstream api"),
        (entry("retention.ms", None), 42, "null"),
    ],
)
async def test_values_that_cannot_be(
    node: KafkaNode, key: int, config: dict[str, Any], code: int, message: str
) -> None:
    await add(node)
    before = node.metadata.image
    fine = entry("retention.bytes", "5000") if config["name"] != "retention.bytes" else None
    for validate_only in (True, False):
        given = [fine, config] if fine else [config]
        told, text = await alter(node, *given, key=key, validate_only=validate_only)
        assert told == code
        assert message in str(text)
    assert node.metadata.image is before


@pytest.mark.parametrize(
    ("config", "code", "message"),
    [
        (entry("retention.ms", "1000", APPEND), 40, "is no list"),
        (entry("retention.ms", "1000", SUBTRACT), 40, "is no list"),
        (entry("subject", None, APPEND), 42, "null"),
        (entry("subject", None, SUBTRACT), 42, "null"),
        (entry("subject", "flights", SUBTRACT), 40, "nothing would be left"),
        (entry("cleanup.policy", "tidy", APPEND), 40, "cleanup_policy"),
        (entry("cleanup.policy", "delete", SUBTRACT), 40, "nothing would be left"),
        (entry("subject", "x", 4), 42, "no operation 4"),
        (entry("subject", "x", -1), 42, "no operation -1"),
        (entry("no.such", None, DELETE), 40, "Unknown topic config name"),
        (entry("flush.ms", "1", APPEND), 40, "is no list"),
    ],
)
async def test_operations_that_cannot_be(
    node: KafkaNode, config: dict[str, Any], code: int, message: str
) -> None:
    await add(node)
    before = node.metadata.image
    told, text = await alter(node, config)
    assert (told, message in str(text)) == (code, True)
    assert node.metadata.image is before


@pytest.mark.parametrize("key", [ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS])
async def test_resources_that_cannot_be_altered(node: KafkaNode, key: int) -> None:
    await add(node)
    good = entry("retention.ms", "60000")
    for kind, name, code, message in (
        (BROKER, str(NODE), 42, "change its file"),
        (BROKER, "", 42, "change its file"),
        (LOGGER, str(NODE), 42, "resource type 8"),
        (TOPIC, "nowhere", 3, "'nowhere'"),
        (TOPIC, "", 3, "''"),
    ):
        told, text = await alter(node, good, key=key, kind=kind, name=name)
        assert (told, message in str(text)) == (code, True)
    code, text = await alter(node, good, entry("retention.ms", "70000"), key=key)
    assert (code, text) == (42, "retention.ms: named twice in one request; nothing was done"
                                " about it")  # fmt: skip
    assert config_of(node).retention_ms == -1


async def test_a_topic_twice_is_refused_and_the_rest_is_done(node: KafkaNode) -> None:
    for name in ("flights", "ships"):
        await node.add_stream(name)
    resources = [
        resource(TOPIC, name, configs=[entry("retention.ms", "60000")])
        for name in ("flights", "ships", "flights")
    ]
    request = {"resources": resources, "validate_only": False}
    answer = await ask(node, INCREMENTAL_ALTER_CONFIGS, 1, request)
    assert [it["error_code"] for it in answer["responses"]] == [42, 0, 42]
    assert config_of(node).retention_ms == -1
    assert node.metadata.image.stream("ships").config.retention_ms == 60_000


async def test_without_a_controller_is_told_and_nothing_is_altered(node: KafkaNode) -> None:
    await add(node)
    node.metadata.no_controller = NoController("an election is under way")
    assert await alter(node, entry("retention.ms", "60000")) == (41, "an election is under way")
    assert by_name(await describe(node, TOPIC, "flights"))["retention.ms"]["value"] == "-1"


async def test_the_default_of_min_isr_is_a_majority(node: KafkaNode) -> None:
    node.metadata.register(1, NodeId(8))
    node.metadata.register(1, NodeId(9))
    await add(node, replicas=3)
    assert await alter(node, entry("min.insync.replicas", "3")) == (0, None)
    assert config_of(node).min_isr == 3
    assert await alter(node, entry("min.insync.replicas", None, DELETE)) == (0, None)
    assert config_of(node).min_isr == 2
