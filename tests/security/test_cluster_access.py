"""Three nodes that know each other: what they ask of each other is done, and by nobody else."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import nats
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from nats.aio.client import Client

from streamlog.authz.signature import KEY, sign
from tests.guarded_node import ADMIN, GuardedNode, librdkafka
from tools.nodes.server_process import NatsServer, wait_until


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[GuardedNode]]:
    directory = tmp_path_factory.mktemp("guarded-cluster")
    server = NatsServer(directory)
    server.start()
    nodes = [GuardedNode(directory / f"node-{n}", server.url, number=n) for n in (1, 2, 3)]
    try:
        for node in nodes:
            node.join(nodes)
            node.spawn()
        for node in nodes:
            node.wait_ready()
        yield nodes
        for node in nodes:
            node.ask_to_stop()
        assert [node.wait(30) for node in nodes] == [0, 0, 0]
    finally:
        for node in nodes:
            node.kill()
        server.kill()


@pytest.fixture
async def client(nodes: list[GuardedNode]) -> AsyncIterator[Client]:
    connected = await nats.connect(nodes[0].nats_url)
    yield connected
    await connected.close()


async def asked(
    client: Client, subject: str, reply: str, headers: dict[str, str]
) -> dict[str, Any]:
    """The answer to a request whose reply subject is signed."""
    subscription = await client.subscribe(reply, max_msgs=1)
    await client.publish(subject, reply=reply, headers=headers)
    answer: dict[str, Any] = json.loads((await subscription.next_msg(timeout=10)).data)
    return answer


async def test_replicas_keep_up_and_nodes_ask_each_other(
    nodes: list[GuardedNode], client: Client
) -> None:
    """Records are committed by all, and whoever is asked knows what another node leads."""
    first = nodes[0]
    admin = AdminClient(librdkafka(first, ADMIN))
    names = [f"r{number}" for number in range(4)]
    made = admin.create_topics([NewTopic(name, 1, replication_factor=3) for name in names])
    for future in made.values():
        future.result(30)
    told: list[Any] = []
    producer = Producer(librdkafka(first, ADMIN, **{"acks": "all"}))
    for name in names:
        producer.produce(name, b"x", on_delivery=lambda error, _: told.append(error))
    assert producer.flush(30) == 0
    assert told == [None] * len(names)
    topics = admin.list_topics(timeout=10).topics
    leaders = {topics[name].partitions[0].leader for name in names}
    assert len(leaders) > 1, "the leaders are spread"
    for name in names * 3:  # any of the nodes answers
        subject = f"$JS.streamlog.API.STREAM.INFO.{name}"
        key, reply = first.admin_key, client.new_inbox()
        now_ms = time.time_ns() // 1_000_000
        headers = sign({KEY: key.public}, subject, b"", key.sign, now_ms=now_ms, reply=reply)
        answer = await asked(client, subject, reply, headers)
        assert answer["state"]["messages"] == 1, answer


def test_a_rule_holds_on_every_node(nodes: list[GuardedNode]) -> None:
    first = nodes[0]
    file = first.password_file("reader")
    first.admin("user", "add", "reader", "--new-password-file", str(file))
    first.admin("acl", "add", "-p", "User:reader", "-o", "describe", "-t", "r1")

    def sees(node: GuardedNode) -> set[str]:
        return set(AdminClient(librdkafka(node, "reader")).list_topics(timeout=10).topics)

    for node in nodes:
        wait_until(lambda node=node: sees(node) == {"r1"}, "the rule does not hold")  # type: ignore[misc]
    first.admin("acl", "rm", "--yes", "-p", "User:reader")
    for node in nodes:
        wait_until(lambda node=node: sees(node) == set(), "the rule still holds")  # type: ignore[misc]


def test_an_operator_asks_any_node(nodes: list[GuardedNode]) -> None:
    servers = ",".join(node.kafka for node in nodes)
    done = nodes[0].cli("cluster", "quorum", "--bootstrap-server", servers, user=ADMIN)
    assert done.code == 0, done
    refused = nodes[0].cli("cluster", "drain", "2", "--bootstrap-server", servers, user="reader")
    assert refused.code == 1
    assert "may not" in refused.err


def test_a_command_on_a_nodes_machine_comes_as_the_node(nodes: list[GuardedNode]) -> None:
    """At the node's own address, without a user of the cluster's."""
    config = nodes[1].command[-1]
    done = nodes[1].cli("cluster", "check", "--wait", "--timeout", "30", "--node-config", config)
    assert done.code == 0, done
    both = nodes[1].cli("cluster", "check", "--node-config", config, user=ADMIN)
    assert (both.code, "leave out --user" in both.err) == (2, True), both


async def test_a_signed_request_counts_at_one_node_alone(
    nodes: list[GuardedNode], client: Client
) -> None:
    """Whichever of the nodes it is said to again, be there another controller or not."""
    key = nodes[0].admin_key
    subject = "$JS.streamlog.API.STREAM.NAMES"

    def signed() -> tuple[str, dict[str, str]]:
        """And where the answer is to go."""
        now_ms, reply = time.time_ns() // 1_000_000, client.new_inbox()
        who = {KEY: key.public}
        return reply, sign(who, subject, b"", key.sign, now_ms=now_ms, reply=reply)

    async def code(request: tuple[str, dict[str, str]]) -> int:
        answer = await asked(client, subject, *request)
        return int(answer.get("error", {}).get("code", 0))

    overheard = signed()
    assert await code(overheard) == 0
    assert {await code(overheard) for _ in range(20)} == {401}
    servers = ",".join(node.kafka for node in nodes)
    moved = await asyncio.to_thread(
        nodes[0].cli, "cluster", "transfer-controller", "--bootstrap-server", servers, user=ADMIN
    )
    assert moved.code == 0, moved
    assert {await code(overheard) for _ in range(20)} == {401}
    deadline = time.monotonic() + 10
    while await code(signed()) != 0:
        assert time.monotonic() < deadline, "the new controller lets nobody in"
