"""Stock Kafka admin clients administer three nodes, whichever of them is asked."""

import asyncio
from collections.abc import Callable
from typing import Any

import nats
import pytest

from tools.nodes.dev import Dev
from tools.nodes.server_process import wait_until

pytestmark = pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning")

COUNT = 50


async def publish(url: str, subject: str) -> None:
    client = await nats.connect(url)
    for _ in range(COUNT):
        await client.request(subject, b"x" * 100, timeout=30)
    await client.close()


def placed(admin: Any) -> dict[str, Any]:
    (topic,) = admin.describe_topics(["cargo"])
    found: dict[str, Any] = topic["partitions"][0]
    return found


def test_partitions_are_moved_led_and_shortened_from_any_node(new_dev: Callable[..., Dev]) -> None:
    from kafka.admin import KafkaAdminClient

    dev = new_dev("--nodes", "3")
    dev.start()
    servers = [str(node["kafka"]) for node in dev.addresses["nodes"]]
    admins = [KafkaAdminClient(bootstrap_servers=server) for server in servers]
    try:
        move_lead_and_shorten(dev, admins[0])
        alter_here_and_describe_there(admins)
    finally:
        for admin in admins:
            admin.close()


def move_lead_and_shorten(dev: Dev, admin: Any) -> None:
    from kafka import TopicPartition
    from kafka.admin import NewTopic

    admin.create_topics([NewTopic("cargo", 1, 2)])
    tp = TopicPartition("cargo", 0)
    before = placed(admin)
    first, second = before["replica_nodes"]
    (third,) = {1, 2, 3} - {first, second}
    asyncio.run(publish(dev.nats, "cargo"))
    assert admin.alter_partition_reassignments({tp: [third, first]}) == {tp: None}

    def moved() -> bool:
        moves = admin.list_partition_reassignments([tp])
        if moves:
            assert set(moves[tp]["replicas"]) == {1, 2, 3}
            assert (moves[tp]["adding_replicas"], moves[tp]["removing_replicas"]) == (
                [third],
                [second],
            )
        return not moves

    wait_until(moved, "the move does not end")
    wait_until(lambda: placed(admin)["replica_nodes"] == [third, first], "not placed")
    admin.elect_leaders(0, {"cargo": [0]})
    wait_until(lambda: placed(admin)["leader_id"] == third, "not led by the preferred replica")
    assert admin.delete_records({tp: COUNT // 2})[tp]["low_watermark"] == COUNT // 2
    sizes = {
        node["broker"]: sum(
            partition["partition_size"]
            for topic in node["log_dirs"][0]["topics"]
            for partition in topic["partitions"]
        )
        for node in admin.describe_log_dirs({"cargo": [0]})
    }
    assert sizes[second] == 0
    assert sizes[first] == sizes[third] > COUNT * 100


def alter_here_and_describe_there(admins: list[Any]) -> None:
    """Each of them asks whichever node it likes; the next one finds what was done."""
    from kafka.admin import ConfigResource, ConfigResourceType

    for round_number in range(6):
        limit = str(60_000 + round_number)
        resource = ConfigResource(ConfigResourceType.TOPIC, "cargo", {"retention.ms": limit})
        admins[round_number % 3].alter_configs([resource])
        asked = ConfigResource(ConfigResourceType.TOPIC, "cargo")
        for admin in admins:
            told = admin.describe_configs([asked])["topic"]["cargo"]
            assert told["retention.ms"]["value"] == limit
    assert admins[0].describe_cluster()["controller_id"] in {1, 2, 3}
    for node_id in (1, 2, 3):
        node = ConfigResource(ConfigResourceType.BROKER, str(node_id))
        told = admins[0].describe_configs([node], config_filter="all")["broker"][str(node_id)]
        assert told["node.id"]["value"] == str(node_id)
