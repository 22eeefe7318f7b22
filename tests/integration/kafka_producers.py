"""Three stock Kafka producers, a function each: write values to partition 0, await the answers."""

import asyncio
from collections.abc import Callable, Sequence

WRITE_TIMEOUT_S = 60.0

Offsets = list[int]
"""As the producer was told them; where it wants no answer they say nothing."""
Writer = Callable[..., Offsets]

Header = tuple[str, bytes]


def confluent(
    kafka: str,
    topic: str,
    values: Sequence[bytes | None],
    *,
    codec: str = "none",
    acks: str = "all",
) -> Offsets:
    """Idempotent where ``acks`` allows it."""
    from confluent_kafka import Producer

    settings = {
        "bootstrap.servers": kafka,
        "compression.type": codec,
        "acks": acks,
        "enable.idempotence": acks == "all",
        "linger.ms": 5,
    }
    offsets: Offsets = []
    problems: list[object] = []

    def told(error: object, message: object) -> None:
        if error is not None:
            problems.append(error)
        else:
            offsets.append(message.offset() if acks != "0" else -1)  # type: ignore[attr-defined]

    producer = Producer(settings)
    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=told)
    assert producer.flush(WRITE_TIMEOUT_S) == 0
    assert problems == []
    return offsets


def kafka_python(
    kafka: str,
    topic: str,
    values: Sequence[bytes | None],
    *,
    codec: str = "none",
    acks: str = "all",
) -> Offsets:
    """With its own defaults, idempotent but where ``acks`` does not allow it."""
    from kafka import KafkaProducer

    wanted = acks if acks == "all" else int(acks)
    more = {} if acks == "all" else {"enable_idempotence": False}
    producer = KafkaProducer(
        bootstrap_servers=kafka,
        acks=wanted,
        compression_type=None if codec == "none" else codec,
        **more,
    )
    try:
        sent = [producer.send(topic, value, partition=0) for value in values]
        producer.flush(WRITE_TIMEOUT_S)
        return [it.get(WRITE_TIMEOUT_S).offset for it in sent]
    finally:
        producer.close()


def aiokafka(
    kafka: str,
    topic: str,
    values: Sequence[bytes | None],
    *,
    codec: str = "none",
    acks: str = "all",
) -> Offsets:
    """Idempotent where ``acks`` allows it."""
    return asyncio.run(_aiokafka(kafka, topic, values, codec, acks))


async def _aiokafka(
    kafka: str, topic: str, values: Sequence[bytes | None], codec: str, acks: str
) -> Offsets:
    from aiokafka import AIOKafkaProducer

    producer = AIOKafkaProducer(
        bootstrap_servers=kafka,
        acks=acks if acks == "all" else int(acks),
        enable_idempotence=acks == "all",
        compression_type=None if codec == "none" else codec,
        linger_ms=5,
    )
    await producer.start()
    try:
        sent = [await producer.send(topic, value, partition=0) for value in values]
        told = await asyncio.wait_for(asyncio.gather(*sent), WRITE_TIMEOUT_S)
        return [-1 if it is None else it.offset for it in told]
    finally:
        await producer.stop()


WRITERS: dict[str, Writer] = {
    "confluent": confluent,
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
}
