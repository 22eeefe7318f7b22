"""The blocks of a stream, cut from what a plain Kafka consumer reads."""

from typing import Any, Final

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, TopicPartition

from streamlog.ledger.core.chain import find_genesis
from streamlog.ledger.core.encoding import encode_block
from streamlog.record.codec import Record
from tests.oracles.offline_cut import cut_stream
from tests.watermarks import watermarks

HTTP_TIMEOUT_S: Final = 5.0
READ_TIMEOUT_S: Final = 60.0


def cut_offline(servers: str, stream: str) -> list[bytes]:
    """All blocks of a stream that a plain Kafka consumer reads, cut by nobody's node."""
    records = read_records(servers, stream)
    genesis = find_genesis(records)
    assert genesis is not None
    return [encode_block(block) for block in cut_stream(genesis, records)]


def read_records(servers: str, stream: str) -> list[Record]:
    """All that is committed, by confluent-kafka."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "offline",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
        }
    )
    try:
        low, high = watermarks(consumer, TopicPartition(stream, 0), READ_TIMEOUT_S)
        consumer.assign([TopicPartition(stream, 0, low)])
        records: list[Record] = []
        while not records or records[-1].offset < high - 1:
            message = consumer.poll(READ_TIMEOUT_S)
            assert message is not None, f"{len(records)} records of [{low}, {high})"
            if message.error():
                error = message.error()
                assert error is not None and error.name() == "_PARTITION_EOF", error
                break
            records.append(_record(message))
        return records
    finally:
        consumer.close()


def _record(message: Any) -> Record:
    kind, timestamp_ms = message.timestamp()
    assert kind != TIMESTAMP_NOT_AVAILABLE
    headers = tuple((str(name), value) for name, value in message.headers() or ())
    return Record(message.offset(), timestamp_ms, message.key(), message.value(), headers)
