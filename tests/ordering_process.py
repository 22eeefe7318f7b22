"""``streamlog ledger serve`` as a real process: the same folder and port at each start."""

import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, TopicPartition

from benchmarks.ports import free_port
from streamlog.ledger.core.encoding import encode_block
from streamlog.ledger.core.genesis import find_genesis
from streamlog.ledger.core.offline import cut_stream
from streamlog.ledger.files import blocks_of, chain_folder
from streamlog.record.codec import Record
from tests.server_process import ServerProcess, program, wait_until

HTTP_TIMEOUT_S: Final = 5.0
READ_TIMEOUT_S: Final = 60.0


class OrderingProcess(ServerProcess):
    """One node of one channel."""

    def __init__(
        self,
        name: str,
        directory: Path,
        channel: str,
        *options: str,
        servers: Callable[[], str],
        nats: str,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.name = name
        self.channel = channel
        self.directory = directory / "blocks"
        self.http_port = free_port()
        self._servers = servers
        self._options = (*options, "--nats-server", nats)
        super().__init__([], directory / "node.log")

    def start(self) -> None:
        """Return when its channel can be read."""
        self.spawn()
        self.wait_ready()

    def spawn(self) -> None:
        command = [program("streamlog"), "ledger", "serve", "--node", self.name]
        command += ["--dir", str(self.directory), "--channel", self.channel]
        command += ["--http-port", str(self.http_port), "--bootstrap-server", self._servers()]
        self.command = [*command, *self._options]
        super().spawn()

    def wait_ready(self) -> None:
        def ready() -> bool:
            assert self.is_running(), f"node {self.name} ended:\n{self.log_text()[-4000:]}"
            return self.http("/readyz")[0] == 200

        wait_until(ready, f"ordering node {self.name} is not ready")

    def http(self, path: str) -> tuple[int, str]:
        """Status and body; status 0 where nobody answers."""
        address = f"http://127.0.0.1:{self.http_port}{path}"
        try:
            with urllib.request.urlopen(address, timeout=HTTP_TIMEOUT_S) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def metrics(self) -> dict[str, float]:
        """Samples by their names and labels as they are written, without the channel."""
        found = {}
        for line in self.http("/metrics")[1].splitlines():
            if line.startswith("streamlog_ledger_"):
                name, _, value = line.rpartition(" ")
                short = name.removeprefix("streamlog_ledger_")
                short = short.replace(f'channel="{self.channel}",', "")
                found[short.replace(f'{{channel="{self.channel}"}}', "")] = float(value)
        return found

    @property
    def height(self) -> int:
        """By its metrics; -1 while it is away."""
        return int(self.metrics().get("height", -1))

    def blocks(self) -> list[bytes]:
        """What its files have."""
        folder, _ = chain_folder(self.directory, self.channel)
        return list(blocks_of(folder))

    def segments(self) -> dict[str, bytes]:
        """Its files of blocks, as they are."""
        folder, _ = chain_folder(self.directory, self.channel)
        return {path.name: path.read_bytes() for path in sorted(folder.glob("*.log"))}

    def verify(self) -> dict[str, Any]:
        """What ``streamlog ledger verify`` says of its files."""
        command = [program("streamlog"), "ledger", "verify", str(self.directory), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer


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
        low, high = consumer.get_watermark_offsets(TopicPartition(stream, 0), READ_TIMEOUT_S)
        consumer.assign([TopicPartition(stream, 0, low)])
        records: list[Record] = []
        while not records or records[-1].offset < high - 1:
            message = consumer.poll(READ_TIMEOUT_S)
            assert message is not None, f"{len(records)} records of [{low}, {high})"
            if message.error():
                assert message.error().name() == "_PARTITION_EOF", message.error()
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
