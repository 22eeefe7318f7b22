"""A real node for tests with Spark, and what its disk has."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from streamlog.record.batch import BatchHeader, batches
from streamlog.record.codec import Record, iter_records
from tools.nodes.dev import Dev
from tools.nodes.server_process import wait_until

TIMEOUT_S = 30.0


class LiveNode(Dev):
    """``streamlog dev``: streams are made over the socket API, and read from the disk."""

    def __init__(self, directory: Path, *options: str) -> None:
        super().__init__(directory, *options)
        self.created: set[str] = set()

    def create(self, stream: str, partitions: int = 1, **config: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.kafka})
        topic = NewTopic(stream, partitions, 1, config=config)
        admin.create_topics([topic])[stream].result(TIMEOUT_S)
        self.created.add(stream)
        first = self.folder(stream)
        wait_until(first.is_dir, f"{stream} has no folder")

    def produce(self, stream: str, values: list[bytes]) -> None:
        """To partition 0."""
        producer = Producer({"bootstrap.servers": self.kafka})
        for value in values:
            producer.produce(stream, value, partition=0)
        assert producer.flush(TIMEOUT_S) == 0

    def produce_keyed(self, stream: str, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Keys and values, to the partitions that the keys say."""
        producer = Producer({"bootstrap.servers": self.kafka})
        for key, value in records:
            producer.produce(stream, value, key)
        assert producer.flush(TIMEOUT_S) == 0

    def folder(self, stream: str, partition: int = 0) -> Path:
        (folder,) = self.data_dir.rglob("streams")
        return folder / stream / str(partition)

    def records(self, stream: str, partition: int = 0) -> list[Record]:
        """All that are in the log."""
        return [
            record
            for _, batch in self._batches(stream, partition)
            for record in iter_records(batch)
        ]

    def headers(self, stream: str, partition: int = 0) -> list[BatchHeader]:
        """Of all batches."""
        return [header for header, _ in self._batches(stream, partition)]

    def _batches(self, stream: str, partition: int) -> Iterator[tuple[BatchHeader, memoryview]]:
        for segment in sorted(self.folder(stream, partition).glob("*.log")):
            yield from batches(segment.read_bytes())

    def values(self, stream: str, partitions: int = 1) -> list[bytes | None]:
        return [it.value for number in range(partitions) for it in self.records(stream, number)]
