"""Expectations by subject through a leader that is killed: the next one knows every subject."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import nats
import pytest
from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from nats.js.errors import APIError

from tests.history import Lane
from tools.nodes.cluster import Cluster

EXPECTED = "Nats-Expected-Last-Subject-Sequence"
PATIENCE_S = 60.0
PUBLISHES = 30


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path) as cluster:
        yield cluster


async def stored(js: JetStreamContext, subject: str, last: int) -> int:
    """The sequence it got, however often it took. Raises APIError for another expectation."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                ack = await js.publish(subject, headers={EXPECTED: str(last)}, timeout=2)
            except APIError as error:
                if error.code != 503:
                    raise
            except (NatsError, TimeoutError):
                pass
            else:
                return ack.seq
            await asyncio.sleep(0.05)


async def test_a_new_leader_knows_every_subject(cluster: Cluster) -> None:
    client = await nats.connect(cluster.nats.url)
    js = client.jetstream(domain="streamlog")
    await js.add_stream(name="subjects", subjects=["subjects.>"], num_replicas=3)
    lane = Lane("subjects")
    last = {}
    for number in range(PUBLISHES):
        subject = f"subjects.{number}"
        last[subject] = await stored(js, subject, 0)
    leader = cluster.leader(lane)
    cluster.kill(leader)
    for subject, sequence in last.items():
        with pytest.raises(APIError) as caught:
            await stored(js, subject, 0)
        assert (caught.value.err_code, caught.value.description) == (
            10071, f"wrong last sequence: {sequence}",
        )  # fmt: skip
        again = await stored(js, subject, sequence)
        assert again > sequence
        last[subject] = again
    assert cluster.leader(lane) != leader
    cluster.start(leader)
    cluster.wait_settled([lane])
    for subject, sequence in last.items():
        assert (await js.get_last_msg("subjects", subject)).seq == sequence
    await client.close()
