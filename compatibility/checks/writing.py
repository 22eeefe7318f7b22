"""Producing: plain, idempotent, with each codec; what is stored is what was given."""

from collections.abc import Callable

from compatibility.checks.check import same, same_records
from compatibility.outcome import Failed
from compatibility.scene import Scene, values
from compatibility.segments import batches

COUNT = 200
TOO_FEW_TO_COMPRESS = 3
"""Records. librdkafka sends a batch as it is if it would not be smaller compressed, and a busy machine
fills a batch with one."""


def produce(scene: Scene) -> str:
    return _produce(scene, scene.topic(), codec="none", idempotent=False)


def idempotent(scene: Scene) -> str:
    """Each batch bears the number of a producer, which is what makes a repeated one known."""
    topic = scene.topic()
    note = _produce(scene, topic, codec="none", idempotent=True)
    if any(batch.producer_id < 0 for batch in batches(scene.cluster.folder_of(topic))):
        raise Failed("the batches bear no producer's id")
    return note


def codec(name: str) -> Callable[[Scene], str]:
    """Both ways: what the client compresses, and what the node compressed for a NATS publisher."""

    def run(scene: Scene) -> str:
        topic = scene.topic()
        note = _produce(scene, topic, codec=name, idempotent=False)
        stored = {
            batch.codec
            for batch in batches(scene.cluster.folder_of(topic))
            if batch.codec == name or batch.record_count > TOO_FEW_TO_COMPRESS
        }
        same(stored, {name}, "codecs of the batches")
        for source in (topic, _published(scene, name)):
            program = scene.start("consume", topic=source, partition=0, offset=0)
            same_records(program.records(COUNT), values(0, COUNT))
            program.finish()
        return note

    return run


def _published(scene: Scene, codec: str) -> str:
    topic = scene.topic(configs={"compression.type": codec})
    scene.publish(topic, values(0, COUNT))
    return topic


def _produce(scene: Scene, topic: str, *, codec: str, idempotent: bool) -> str:
    """Offsets as the client was told them, values as they were given."""
    wanted = values(0, COUNT)
    program = scene.start("produce", topic=topic, partition=0, codec=codec, idempotent=idempotent)
    for line in wanted:
        program.send(line)
    told = program.finish()
    same(len(told), COUNT, "acknowledged")
    same_records(scene.stored(topic, COUNT), wanted)
    same(scene.end(topic), COUNT, "end of the log")
    if any(line["offset"] is None for line in told):
        return "does not say at which offsets it wrote"
    same([line["value"] for line in sorted(told, key=_offset)], wanted, "values by told offsets")
    return ""


def _offset(line: dict[str, object]) -> int:
    offset = line["offset"]
    assert isinstance(offset, int)
    return offset
