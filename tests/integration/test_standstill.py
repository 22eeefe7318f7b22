"""Sealed, read-only and paused streams, by the command line, for NATS and for Kafka."""

import asyncio
import json
from typing import Any

import nats
import pytest
from confluent_kafka import KafkaError, Producer

from tests.cluster_cli import Cli
from tests.integration.conftest import read_stream
from tools.nodes.dev import Dev


class Sides:
    """What publishers and producers of one stream are told."""

    def __init__(self, dev: Dev, stream: str) -> None:
        self._dev, self._stream = dev, stream

    def publish(self) -> int:
        """The sequence, or the error's number, negative."""

        async def ask() -> dict[str, Any]:
            client = await nats.connect(self._dev.nats)
            try:
                reply = await client.request(self._stream, b"nats", timeout=5)
                told: dict[str, Any] = json.loads(reply.data)
                return told
            finally:
                await client.close()

        told = asyncio.run(ask())
        return -int(told["error"]["err_code"]) if "error" in told else int(told["seq"])

    def produce(self) -> int | None:
        """The error's number, None if there was none."""
        errors: list[KafkaError | None] = []
        producer = Producer({"bootstrap.servers": self._dev.kafka, "message.timeout.ms": 5000})
        producer.produce(self._stream, b"kafka", on_delivery=lambda error, _: errors.append(error))
        producer.flush(10)
        (error,) = errors
        return None if error is None else int(error.code())

    def values(self) -> list[bytes]:
        return [read.value for read in read_stream(self._dev.kafka, self._stream)]


@pytest.fixture
def cli(dev: Dev) -> Cli:
    return Cli(dev)


def test_paused_and_resumed(dev: Dev, cli: Cli) -> None:
    sides = Sides(dev, "resting")
    cli.ok("stream add resting")
    assert sides.publish() == 1
    assert "paused" in cli.ok("stream pause resting")
    assert (sides.publish(), sides.produce()) == (-10118, KafkaError.POLICY_VIOLATION)
    assert sides.values() == [b"nats"]
    cli.ok("stream resume resting")
    assert (sides.produce(), sides.publish()) == (None, 3)


def test_read_only_streams_may_be_purged(dev: Dev, cli: Cli) -> None:
    sides = Sides(dev, "finished")
    cli.ok("stream add finished")
    assert (sides.publish(), sides.publish()) == (1, 2)
    cli.ok("stream edit finished --read-only")
    assert (sides.publish(), sides.produce()) == (-10109, KafkaError.POLICY_VIOLATION)
    assert "1 records" in cli.ok("stream purge finished --keep 1 --yes")
    cli.ok("stream pause finished")
    assert "is read-only" in cli.ok("stream resume finished"), "not that it takes records"
    cli.ok("stream edit finished --no-read-only")
    assert sides.publish() == 3


def test_a_seal_is_for_ever(dev: Dev, cli: Cli) -> None:
    sides = Sides(dev, "kept")
    cli.ok("stream add kept")
    assert sides.publish() == 1
    assert cli.run("stream seal kept").code != 0
    assert sides.publish() == 2
    cli.ok("stream seal kept --yes")
    assert (sides.publish(), sides.produce()) == (-10109, KafkaError.POLICY_VIOLATION)
    assert "sealed" in cli.refused("stream purge kept --yes")
    assert sides.values() == [b"nats", b"nats"]
    cli.ok("stream rm kept --yes")


def test_what_is_not_there_cannot_be_paused(cli: Cli) -> None:
    assert "there is no stream" in cli.refused("stream pause nothing")


def test_a_stream_of_all_options(dev: Dev, cli: Cli) -> None:
    options = ("--subject-transform", "options -> changed", "--republish", "changed -> again")
    cli.ok("stream add options --allow-atomic", *options)
    config = cli.json("stream info options")["config"]
    assert config["allow_atomic"] is True
    assert config["subject_transform"] == "options -> changed"
    assert Sides(dev, "options").publish() == 1
    cli.ok("stream edit options --no-allow-atomic --republish", "changed -> seen headers-only")
    config = cli.json("stream info options")["config"]
    assert (config["allow_atomic"], config["republish"]) == (False, "changed -> seen headers-only")
    assert "--subject-transform" in cli.refused("stream edit options --subject-transform", "x")
