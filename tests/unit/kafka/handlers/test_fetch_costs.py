"""What a consumer's fetch may cost, in counts that are the same on every run.

See the head of ``tests/unit/test_costs.py`` for what to do about a limit that is passed.
"""

from collections import Counter
from pathlib import Path
from typing import Final

from streamlog.config import SaslSection
from streamlog.log.log import PartitionLog
from streamlog.log.settings import LogSettings
from streamlog.log.storage.disk import OsDisk
from streamlog.log.storage.file_pool import FilePool
from streamlog.wire.registry import SASL_AUTHENTICATE, SASL_HANDSHAKE
from tests.call_counts import counted
from tests.kafka_node import KafkaNode
from tests.raw_client import RawClient, at, wanted
from tests.record_batches import HandRecord, hand_batch

FETCHES: Final = 10
FETCH_BYTES: Final = 2**20
CALLS_MAX: Final = 179
"""Of a fetch without its read, its client included: our functions, and what they call."""
LOGIN_CALLS_MAX: Final = 178
"""More, where everybody has to log in."""
READ_CALLS_MAX: Final = 48
"""Of a read that goes on where another one ended. It does not ask the file for its size: it has
read the header behind its end."""
SYSTEM_CALLS: Final = {"socket.recv": 1, "socket.send": 2, "sendfile": 1, "preadv": 1}
"""Of each fetch of the most that a client asks for by default; and one wait for the request."""


async def test_a_fetch_takes_few_calls_and_wakes_the_loop_once(node: KafkaNode) -> None:
    await _fill(node)
    async with RawClient(node.port) as client:
        costs = await _costs(client)
    calls = sum(costs, Counter[str]())
    assert calls["SocketChannel.receive"] == 2 * FETCHES, "begun once and resumed once for each"
    assert not calls["SocketChannel._mute"], "the loop is asked anew for each request"
    # On a busy machine a socket may be full in the midst of one, so the cheapest one counts.
    assert {name: min(cost[name] for cost in costs) for name in SYSTEM_CALLS} == SYSTEM_CALLS
    assert min(cost.total() for cost in costs) <= CALLS_MAX


async def test_who_has_logged_in_costs_a_call_more(node: KafkaNode) -> None:
    await _fill(node)
    async with RawClient(node.port) as client:
        open_to_all = await _costs(client)
    sasl = SaslSection(mechanisms=("PLAIN",), allow_plain_without_tls=True)
    async with KafkaNode(sasl=sasl) as guarded:
        guarded.metadata.add_user("alice", "secret")
        await _fill(guarded)
        async with RawClient(guarded.port) as client:
            await client.ask(SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
            said = {"auth_bytes": b"\0alice\0secret"}
            assert (await client.ask(SASL_AUTHENTICATE, 2, said))["error_code"] == 0
            after_a_login = await _costs(client)
    least = min(cost.total() for cost in open_to_all)
    assert min(cost.total() for cost in after_a_login) <= least + LOGIN_CALLS_MAX


async def _fill(node: KafkaNode) -> None:
    partition = await node.add_stream("flights")
    for _ in range(110):
        partition.append([bytes(10_000)])


async def _costs(client: RawClient) -> list[Counter[str]]:
    """Of each fetch, once all is warm."""
    request = wanted(at(0, max_bytes=FETCH_BYTES), max_wait_ms=500)
    for _ in range(2):
        await client.fetched(client.send_fetch(request, 12))
    costs: list[Counter[str]] = []
    with counted() as calls:
        for _ in range(FETCHES):
            before = calls.copy()
            client.send_fetch(request, 12)
            assert len(await client.frame()) > FETCH_BYTES * 0.9
            costs.append(calls - before)
    return costs


def test_a_read_that_goes_on_takes_few_calls(tmp_path: Path) -> None:
    disk = OsDisk()
    settings = LogSettings(segment_bytes=64 * FETCH_BYTES)
    log = PartitionLog.open(tmp_path / "0", settings, disk=disk, files=FilePool(disk, 8))
    body = bytes(FETCH_BYTES // 16)
    while len(log.segments) < 2:
        log.append(hand_batch([HandRecord(body)], log.log_end_offset, leader_epoch=0), 1)
    reads = 0
    offset = 15
    log.read(0, FETCH_BYTES, log.log_end_offset).close()
    with counted() as calls:
        while offset < 500:
            with log.read(offset, FETCH_BYTES, log.log_end_offset) as records:
                assert len(records) > FETCH_BYTES // 2
            offset += 15
            reads += 1
    log.close()
    assert calls.total() / reads <= READ_CALLS_MAX
    assert calls["pread"] / reads <= 1.1, "its index is read again each time"
