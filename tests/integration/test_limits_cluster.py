"""Three nodes keep the limits of a stream alike, and what its removed messages still count for."""

import asyncio
import json
import uuid
from pathlib import Path

from tests.integration.test_mirrors import OURS, Api, api_of
from tests.integration.test_mirrors_failures import in_thread, kill_all_nodes, leader_of, values_of
from tools.nodes.cluster import Cluster


async def publish(api: Api, subject: str, message_id: str) -> bool:
    """Whether it was stored already."""
    async with asyncio.timeout(30):
        while True:
            try:
                answer = await api.client.request(
                    subject, message_id.encode(), timeout=2, headers={"Nats-Msg-Id": message_id}
                )
            except Exception:
                await asyncio.sleep(0.1)
                continue
            told = json.loads(answer.data)
            if "error" not in told:
                return bool(told.get("duplicate", False))
            await asyncio.sleep(0.1)


async def test_ids_of_messages_that_were_too_many_are_known_after_kills(tmp_path: Path) -> None:
    ids = [uuid.uuid4().hex for _ in range(30)]
    with Cluster(tmp_path, settings={"nats_listen": {}}) as trio:
        ports = [trio[number].port_url for number in (1, 2, 3)]
        async with api_of(ports[0], OURS, *ports[1:]) as api:
            await api.create("s", subjects=["s"], num_replicas=3, max_msgs=2)
            for each in ids[:20]:
                await publish(api, "s", each)
            await kill_all_nodes(trio)
            assert all([await publish(api, "s", each) for each in ids[:20]])
            number = await leader_of(trio, "s")
            await in_thread(trio.kill, number)
            for each in ids[20:]:
                await publish(api, "s", each)
            assert all([await publish(api, "s", each) for each in ids])
            assert (await api.state("s"))["messages"] == 2  # it waits for what is too many to go
            assert await values_of(api, "s") == [each.encode() for each in ids[-2:]]
            await in_thread(trio.restart, number)  # it begins where its leader does
            assert await values_of(api, "s") == [each.encode() for each in ids[-2:]]
            state = await api.state("s")
            assert (state["messages"], state["last_seq"]) == (2, 30)
