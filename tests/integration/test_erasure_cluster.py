"""What is erased stays so on every replica, over kills of the leader and of all nodes."""

import asyncio
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.js import JetStreamContext
from nats.js.api import StreamConfig
from nats.js.errors import APIError, NotFoundError

from tests.history import Lane
from tools.nodes.cluster import Cluster


async def asked(call: Any) -> Any:
    """Again while nobody answers, or nobody leads."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await call()
            except NotFoundError:
                raise
            except (APIError, nats.errors.Error):
                await asyncio.sleep(0.2)


async def check(js: JetStreamContext, gone: set[int], count: int) -> None:
    """Erasures behind the last message are not counted. While nobody leads, STREAM.INFO tells of no messages."""
    async with asyncio.timeout(60):
        while (state := (await asked(lambda: js.stream_info("s"))).state).messages == 0:  # noqa: ASYNC110
            await asyncio.sleep(0.2)
    counted = sum(it <= state.last_seq for it in gone)
    assert (state.messages, state.num_deleted) == (count, counted)
    assert state.last_seq == 20
    for seq in gone:
        with pytest.raises(NotFoundError):
            await asked(lambda seq=seq: js.get_msg("s", seq))
    with pytest.raises(NotFoundError):
        await asked(lambda: js.get_last_msg("s", "s.1"))


async def test_over_kills(tmp_path: Path) -> None:
    lane = Lane("s")
    with Cluster(tmp_path) as cluster:
        client = await nats.connect(cluster.nats.url)
        try:
            js = client.jetstream(domain="streamlog")
            await asked(lambda: js.add_stream(name="s", subjects=["s.*"], num_replicas=3))
            for number in range(20):
                await asked(lambda number=number: js.publish(f"s.{number % 2}", b"x"))
            assert await asked(lambda: js.purge_stream("s", subject="s.1"))
            gone = {*range(2, 21, 2), 21}
            await check(js, gone, 10)
            leader = cluster.leader(lane)
            cluster.kill(leader)
            await check(js, gone, 10)
            assert await asked(lambda: js.delete_msg("s", 3))
            gone |= {3, 22}
            cluster.start(leader)
            cluster.wait_settled([lane])
            cluster.kill()
            cluster.start()
            cluster.wait_settled([lane])
            await check(js, gone, 9)
            cluster.kill(cluster.leader(lane))
            await check(js, gone, 9)
        finally:
            await client.close()


async def test_rules_over_kills(tmp_path: Path) -> None:
    """What a rule of the stream has go is gone under every leader, and nothing else is."""
    lane = Lane("kv")
    with Cluster(tmp_path) as cluster:
        client = await nats.connect(cluster.nats.url)
        try:
            js = client.jetstream(domain="streamlog")
            config = StreamConfig(
                name="kv", subjects=["kv.*"], num_replicas=3, max_msgs_per_subject=2,
                allow_rollup_hdrs=True,
            )  # fmt: skip
            await asked(lambda: js.add_stream(config))
            newest: dict[str, list[bytes]] = {}
            for round_ in range(2):
                for number in range(30):
                    subject, payload = f"kv.{number % 7}", b"%d.%d" % (round_, number)
                    headers = {"Nats-Rollup": "sub"} if number % 11 == 0 else None
                    await asked(
                        lambda subject=subject, payload=payload, headers=headers: js.publish(
                            subject, payload, headers=headers
                        )
                    )
                    before = [] if headers else newest.get(subject, [])
                    # asked again after no answer, a message may be there twice
                    newest[subject] = [*before, payload][-2:]
                await check_kept(js, newest)
                leader = cluster.leader(lane)
                cluster.kill(leader)
                await check_kept(js, newest)
                cluster.start(leader)
                cluster.wait_settled([lane])
            await asked(lambda: js.publish("kv.last", b"", headers={"Nats-Rollup": "all"}))
            cluster.kill()
            cluster.start()
            cluster.wait_settled([lane])
            await check_kept(js, {"kv.last": [b""]})
        finally:
            await client.close()


async def check_kept(js: JetStreamContext, newest: dict[str, list[bytes]]) -> None:
    """A new leader has to read its log before it sees what is too much."""
    wanted = {subject: len(kept) for subject, kept in newest.items()}
    async with asyncio.timeout(60):
        while True:
            info = await asked(lambda: js.stream_info("kv", subjects_filter=">"))
            if info.state.subjects == wanted and info.state.messages == sum(wanted.values()):
                break
            await asyncio.sleep(0.2)
    for subject, kept in newest.items():
        found = (await asked(lambda subject=subject: js.get_last_msg("kv", subject))).data
        assert (found or b"") == kept[-1]
