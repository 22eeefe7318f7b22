"""A user without rights sends a real node requests of every kind, well formed and not, and hears
nothing of what is there.
"""

import asyncio
from random import Random

from streamlog.authn import plain
from streamlog.wire import registry
from streamlog.wire.framing import frame
from streamlog.wire.header import encode_request_header
from streamlog.wire.registry import API_VERSIONS, APIS
from tests.guarded_node import GuardedNode
from tests.random_requests import SPOKEN, RandomRequests
from tests.raw_client import RawClient

ROUNDS = 4
HIDDEN = (b"orders", b"reader", b"secret", b"-secret")
END = 0x7E57


async def logged_in(node: GuardedNode, user: str) -> RawClient:
    client = await RawClient(int(node.kafka.rpartition(":")[2])).__aenter__()
    await client.ask(registry.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
    said = plain.encode_message(user, f"{user}-secret")
    answer = await client.ask(registry.SASL_AUTHENTICATE, 2, {"auth_bytes": said})
    assert answer["error_code"] == 0
    return client


async def told(client: RawClient, request: bytes) -> tuple[bytes, bool]:
    """All that is answered, and whether the connection stands."""
    end = encode_request_header(APIS[API_VERSIONS], 0, END, "end")
    client.write(frame(request) + frame(end))
    heard = b""
    try:
        while True:
            answer = await client.frame()
            if answer.startswith(END.to_bytes(4, "big")):
                return heard, True
            heard += answer
    except (asyncio.IncompleteReadError, ConnectionError):
        return heard, False


async def attack(node: GuardedNode, rng: Random) -> int:
    """How many requests were answered."""
    client, answered = await logged_in(node, "nobody"), 0
    requests = RandomRequests(rng)
    for _ in range(ROUNDS):
        for api, version in SPOKEN:
            body = requests.body(api, version)
            if body is None or api.key in (registry.SASL_HANDSHAKE, registry.SASL_AUTHENTICATE):
                continue
            if rng.random() < 0.3:
                body = requests.changed(body)
            header = encode_request_header(api, version, 7, "raw")
            heard, stands = await told(client, header + body)
            answered += bool(heard)
            leaked = [it for it in HIDDEN if it in heard and it not in body]
            assert not leaked, (api.name, version, body, heard)
            if not stands:
                client.close()
                client = await logged_in(node, "nobody")
    client.close()
    return answered


def test_whoever_may_do_nothing_hears_of_nothing(guarded: GuardedNode) -> None:
    before = guarded.log_text().count("request failed")
    answered = asyncio.run(attack(guarded, Random(20)))
    assert answered > 300
    assert guarded.log_text().count("request failed") == before
    assert guarded.is_running()
