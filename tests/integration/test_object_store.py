"""Object stores as clients keep them: chunks, and then a message that supersedes the object's one before."""

import json
from typing import Final

from tests.integration.jetstream_pair import Pair

CHUNK: Final = bytes(128 * 1024)
CHUNKS: Final = 240
"""30 MB, more than a node reads at once to judge a message."""


async def test_object_is_described_right_after_many_chunks(pair: Pair) -> None:
    for side, domain in zip(pair.sides, (None, "streamlog"), strict=True):
        client = side.publisher.client
        await client.jetstream(domain=domain).create_object_store("o")
        inbox = client.new_inbox()
        acks = await client.subscribe(inbox)
        for _ in range(CHUNKS):
            await client.publish("$O.o.C.x", CHUNK, reply=inbox)
        for number in range(CHUNKS):
            ack = json.loads((await acks.next_msg(timeout=20)).data)
            assert ack == {"stream": "OBJ_o", "seq": number + 1}
        rollup = {"Nats-Rollup": "sub"}
        told = await client.request("$O.o.M.eA==", b"{}", headers=rollup, timeout=20)
        assert json.loads(told.data) == {"stream": "OBJ_o", "seq": CHUNKS + 1}
