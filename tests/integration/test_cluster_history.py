"""The checker of histories sees what it is there for; the harness runs, with one node."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import nats
import pytest
from nats.js.api import StreamConfig

from streamlog.record.codec import RecordRun
from tests.history import Acked, Lane, LaneHistory, Publishers, Violation, check
from tests.integration.watching_consumer import WatchingConsumer
from tools.nodes.cluster import Cluster
from tools.nodes.replica_log import ReplicaLog, read_replica

LANE = Lane("planted")
COUNT, BATCH = 40, 4

Message = tuple[str, bytes]


def messages() -> list[Message]:
    """Of two sequential publishers and one that never tries again."""
    names = [f"{name}:{i}" for i in range(COUNT // 4) for name in ("s0", "s1", "p0", "o0")]
    return [(name, name.encode() * 9) for name in names]


def write(folder: Path, stored: list[Message], *, size: int = BATCH, epoch: int = 1) -> ReplicaLog:
    """A replica's folder with these messages in batches of ``size``."""
    folder.mkdir(parents=True)
    data = b""
    for base in range(0, len(stored), size):
        run = RecordRun()
        for name, value in stored[base : base + size]:
            subject = (b"subject", LANE.subject.encode())
            run.append(None, value, ((b"Nats-Msg-Id", name.encode()), subject))
        data += run.seal(base_offset=base, leader_epoch=epoch, timestamp_ms=1_000)
    (folder / f"{0:020}.log").write_bytes(data)
    return read_replica(folder, folder.name)


def history(stored: list[Message]) -> LaneHistory:
    """All sent; all but those sent once were acknowledged where they are in ``stored``."""
    acked = {
        name: Acked(offset + 1, offset * 0.1)
        for offset, (name, _) in enumerate(stored)
        if not name.startswith("o")
    }
    return LaneHistory(LANE, sent=dict(messages()), acked=acked)


@pytest.fixture
def replicas(tmp_path: Path) -> Callable[..., list[ReplicaLog]]:
    """Three replicas; the last one holds something else where that is given."""

    def create(other: list[Message] | None = None, **how: int) -> list[ReplicaLog]:
        two = [write(tmp_path / f"node-{i}", messages()) for i in (1, 2)]
        return [*two, write(tmp_path / "node-3", other or messages(), **how)]

    return create


def test_what_is_right_passes(replicas: Callable[..., list[ReplicaLog]]) -> None:
    logs = replicas()
    seen = {record.offset: record for record in logs[0].records}
    check(history(messages()), logs, COUNT, seen)


def test_what_was_sent_once_and_not_acknowledged_may_be_missing(tmp_path: Path) -> None:
    without = [message for message in messages() if not message[0].startswith("o")]
    logs = [write(tmp_path / f"node-{i}", without) for i in (1, 2, 3)]
    check(history(without), logs, len(without))


@pytest.mark.parametrize("start", [0, COUNT // 2, COUNT - BATCH])
def test_a_lost_batch_on_one_replica_is_found(
    replicas: Callable[..., list[ReplicaLog]], start: int
) -> None:
    kept = messages()[:start] + messages()[start + BATCH :]
    with pytest.raises(Violation, match=rf"node-3: acknowledged: .*acked as offset {start} "):
        check(history(messages()), replicas(kept), COUNT)


def test_a_lost_tail_on_all_replicas_is_found(tmp_path: Path) -> None:
    kept = messages()[:-BATCH]
    logs = [write(tmp_path / f"node-{i}", kept) for i in (1, 2, 3)]
    with pytest.raises(Violation, match="beyond the end"):
        check(history(messages()), logs, len(kept))


def test_an_ack_that_names_another_message_is_found(
    replicas: Callable[..., list[ReplicaLog]],
) -> None:
    known = history(messages())
    known.acked["s0:0"], known.acked["s1:0"] = known.acked["s1:0"], known.acked["s0:0"]
    with pytest.raises(Violation, match=r"s0:0, acked as offset 1 \(inside the log\), is at 0"):
        check(known, replicas(), COUNT)


def test_a_duplicate_is_found(tmp_path: Path) -> None:
    doubled = [*messages(), messages()[7]]
    logs = [write(tmp_path / f"node-{i}", doubled) for i in (1, 2, 3)]
    with pytest.raises(Violation, match=f"o0:1 is at 7 and at {COUNT}"):
        check(history(messages()), logs, COUNT + 1)


def test_a_duplicate_of_what_was_sent_once_is_found(tmp_path: Path) -> None:
    doubled = [*messages(), messages()[3]]
    logs = [write(tmp_path / f"node-{i}", doubled) for i in (1, 2, 3)]
    with pytest.raises(Violation, match=f"o0:0 is at 3 and at {COUNT}"):
        check(history(messages()), logs, COUNT + 1)


def test_disorder_is_found(tmp_path: Path) -> None:
    """On all replicas alike, and with acks that fit it."""
    swapped = messages()
    swapped[8], swapped[4] = swapped[4], swapped[8]
    logs = [write(tmp_path / f"node-{i}", swapped) for i in (1, 2, 3)]
    with pytest.raises(Violation, match="order: 4 is s0:2, expected s0:1"):
        check(history(swapped), logs, COUNT)


def test_content_that_nobody_sent_is_found(tmp_path: Path) -> None:
    changed = messages()
    changed[5] = (changed[5][0], b"something else")
    logs = [write(tmp_path / f"node-{i}", changed) for i in (1, 2, 3)]
    with pytest.raises(Violation, match="which s1:1 never was"):
        check(history(messages()), logs, COUNT)


@pytest.mark.parametrize("how", [{"size": 2}, {"epoch": 2}])
def test_replicas_with_other_bytes_are_found(
    replicas: Callable[..., list[ReplicaLog]], how: dict[str, int]
) -> None:
    """The same records, but in other batches or epochs."""
    with pytest.raises(Violation, match="node-3 differs from node-1 from 0 on"):
        check(history(messages()), replicas(messages(), **how), COUNT)


def test_a_replica_that_is_behind_is_found(replicas: Callable[..., list[ReplicaLog]]) -> None:
    with pytest.raises(Violation, match=f"node-3: ends at {COUNT - BATCH}"):
        check(history(messages()), replicas(messages()[:-BATCH]), COUNT)


def test_a_hole_is_found(tmp_path: Path) -> None:
    logs = [write(tmp_path / f"node-{i}", messages()) for i in (1, 2, 3)]
    cut = [one._replace(batches=[*one.batches[:3], *one.batches[4:]]) for one in logs]
    with pytest.raises(Violation, match="offset 16 comes after 11"):
        check(history(messages()), cut, COUNT)


def test_what_a_consumer_saw_is_compared(replicas: Callable[..., list[ReplicaLog]]) -> None:
    logs, known = replicas(), history(messages())
    seen = {record.offset: record for record in logs[0].records}
    with pytest.raises(Violation, match="9 was never shown"):
        check(known, logs, COUNT, {k: v for k, v in seen.items() if k != 9})
    with pytest.raises(Violation, match="9 was shown as s0:99, is s1:2"):
        check(known, logs, COUNT, seen | {9: seen[9]._replace(identity="s0:99")})
    with pytest.raises(Violation, match=f"{COUNT} was shown, committed is up to {COUNT}"):
        check(known, logs, COUNT, seen | {COUNT: seen[9]})


def test_gaps_are_measured() -> None:
    known = history(messages())
    late = {"s0:0": Acked(1, 100.0)}
    assert replace(known, acked=known.acked | late).longest_gap_s() > 90


async def until_acked(histories: Mapping[Lane, LaneHistory], count: int) -> None:
    async with asyncio.timeout(30):
        while any(len(it.acked) < count for it in histories.values()):  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_a_real_history_of_one_node_is_borne_out_and_a_cut_log_is_not(
    tmp_path: Path,
) -> None:
    lanes = [Lane("one"), Lane("many", 0), Lane("many", 2)]
    with Cluster(tmp_path, nodes=1) as cluster:
        client = await nats.connect(cluster.nats.url)
        context = client.jetstream(domain="streamlog")
        await context.add_stream(StreamConfig(name="one"))
        await context.add_stream(StreamConfig(name="many", metadata={"streamlog.partitions": "3"}))
        with WatchingConsumer(cluster.servers, lanes) as consumer:
            async with Publishers(context, lanes) as histories:
                await until_acked(histories, 11)
                await asyncio.to_thread(cluster.restart)
                await until_acked(histories, 22)
            await client.close()
            for lane in lanes:
                end = await asyncio.to_thread(cluster.wait_replicated, lane)
                await asyncio.to_thread(consumer.wait_for, lane, end)
                assert len(histories[lane].acked) > 20
                check(histories[lane], [cluster[1].replica(lane)], end, consumer.seen[lane])
        assert consumer.problems == []
        cluster.close()
        whole = cluster[1].replica(lanes[0])
        cut = whole._replace(batches=whole.batches[:-1], records=whole.records[:-1])
        with pytest.raises(Violation):
            check(histories[lanes[0]], [cut], cut.end)
