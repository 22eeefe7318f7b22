"""The management API over NATS: signed requests are known, forged and repeated ones refused."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from nats.errors import NoRespondersError

from streamlog.authz.signature import KEY, NONCE, REPLY, SIGNATURE, TIME, sign
from tests.guarded_node import GuardedNode
from tests.secured_nats import KeyPair

PREFIX = "$JS.streamlog.API."


class Asker:
    def __init__(self, client: Client, key: KeyPair | None = None) -> None:
        self._client = client
        self._key = key

    def headers(
        self, subject: str, data: bytes, ago_ms: int = 0, *, reply: str | None = None
    ) -> dict[str, str]:
        """``reply``: where the answer is to go; None: to an inbox, to which ``send`` has it go."""
        assert self._key is not None
        now_ms = time.time_ns() // 1_000_000 - ago_ms
        reply = self._client.new_inbox() if reply is None else reply
        who = {KEY: self._key.public}
        return sign(who, subject, data, self._key.sign, now_ms=now_ms, reply=reply)

    async def ask(self, verb: str, body: Any = None) -> dict[str, Any]:
        data = json.dumps(body).encode() if body is not None else b""
        headers = None if self._key is None else self.headers(PREFIX + verb, data)
        return await self.send(PREFIX + verb, data, headers)

    async def send(
        self, subject: str, data: bytes, headers: dict[str, str] | None
    ) -> dict[str, Any]:
        answer = await self.answer(subject, data, headers)
        found: dict[str, Any] = json.loads(answer.splitlines()[0])
        return found

    async def answer(
        self, subject: str, data: bytes, headers: dict[str, str] | None, reply: str | None = None
    ) -> bytes:
        """``reply``: another reply subject than the one that is signed."""
        reply = reply or (headers or {}).get(REPLY) or self._client.new_inbox()
        heard = await self._client.subscribe(reply, max_msgs=1)
        await self._client.publish(subject, data, reply=reply, headers=headers)
        return (await heard.next_msg(timeout=10)).data


@pytest.fixture
async def client(guarded: GuardedNode) -> AsyncIterator[Client]:
    connected = await nats.connect(guarded.nats_url)
    yield connected
    await connected.close()


def code(answer: dict[str, Any]) -> int:
    return int(answer.get("error", {}).get("code", 0))


async def test_who_says_nothing_sees_nothing(guarded: GuardedNode, client: Client) -> None:
    asker = Asker(client)
    assert (await asker.ask("STREAM.NAMES"))["streams"] == []
    assert (await asker.ask("INFO"))["streams"] == 0
    for verb, body in (
        ("STREAM.INFO.orders", None),
        ("STREAM.DELETE.orders", None),
        ("STREAM.PURGE.orders", None),
        ("STREAM.MSG.GET.orders", {"seq": 1}),
        ("STREAM.MSG.DELETE.orders", {"seq": 1}),
        ("STREAM.UPDATE.orders", {"name": "orders", "subjects": ["orders"]}),
        ("CONSUMER.NAMES.orders", None),
    ):
        there = await asker.ask(verb, body)
        other = None if body is None else json.loads(json.dumps(body).replace("orders", "none"))
        missing = await asker.ask(verb.replace("orders", "none"), other)
        assert there == missing, verb
        assert code(there) == 404, verb
    made = await asker.ask("STREAM.CREATE.mine", {"name": "mine", "subjects": ["mine"]})
    assert code(made) == 403
    assert code(await asker.ask("META.LEADER.STEPDOWN")) in (403, 503)
    refused = [it for it in guarded.audited() if it.get("principal") == "User:ANONYMOUS"]
    assert {it["resource"] for it in refused if it["event"] == "refused"} >= {"orders", "mine"}
    assert {it["act"] for it in refused if it["event"] == "attempt"} >= {"streams.delete"}


async def test_messages_are_for_who_may_read(guarded: GuardedNode, client: Client) -> None:
    admin, alice = Asker(client, guarded.admin_key), Asker(client, guarded.alice_key)
    found = await admin.ask("STREAM.MSG.GET.secret", {"seq": 1})
    assert found["message"]["seq"] == 1
    assert code(await alice.ask("STREAM.MSG.GET.secret", {"seq": 1})) == 404
    user = f"User:{guarded.alice_key.public}"
    rule = ("-p", user, "-t", "secret")
    await asyncio.to_thread(
        guarded.admin, "acl", "add", "-p", user, "-o", "describe", "-t", "secret"
    )
    assert code(await alice.ask("STREAM.INFO.secret")) == 0
    assert code(await alice.ask("STREAM.MSG.GET.secret", {"seq": 1})) == 403
    assert code(await alice.ask("STREAM.DELETE.secret")) == 403
    await asyncio.to_thread(guarded.admin, "acl", "add", *rule, "-o", "read")
    assert code(await alice.ask("STREAM.MSG.GET.secret", {"seq": 1})) == 0
    await asyncio.to_thread(guarded.admin, "acl", "rm", "--yes", "-p", user)
    assert code(await alice.ask("STREAM.INFO.secret")) == 404


async def test_direct_gets_likewise(guarded: GuardedNode, client: Client) -> None:
    admin = Asker(client, guarded.admin_key)
    config = {"name": "direct", "subjects": ["direct"], "allow_direct": True}
    assert code(await admin.ask("STREAM.CREATE.direct", config)) == 0
    ack = await client.request("direct", b"x", timeout=10)
    assert b'"seq":1' in ack.data.replace(b" ", b"")
    subject = f"{PREFIX}DIRECT.GET.direct"
    data = b'{"seq":1}'
    with pytest.raises(NoRespondersError):  # as where no such stream is
        await client.request(subject, data, timeout=10)
    assert await admin.answer(subject, data, admin.headers(subject, data)) == b"x"


async def test_a_signature_counts_once_for_its_request_and_its_time(
    guarded: GuardedNode, client: Client
) -> None:
    admin = Asker(client, guarded.admin_key)
    subject, data = f"{PREFIX}STREAM.INFO.secret", b""
    good = admin.headers(subject, data)
    assert code(await admin.send(subject, data, good)) == 0
    other = admin.headers(subject, data)
    for headers, sent_to, sent in (
        (good, subject, data),  # again
        (other, f"{PREFIX}STREAM.DELETE.secret", data),
        (other, subject, b'{"deleted_details":true}'),
        (admin.headers(subject, data, ago_ms=60_000), subject, data),
        (admin.headers(subject, data, ago_ms=-60_000), subject, data),
        (other | {KEY: guarded.alice_key.public}, subject, data),
        (other | {KEY: "UNONSENSE"}, subject, data),
        (other | {NONCE: "x" * 24}, subject, data),
        (other | {NONCE: "short"}, subject, data),
        (other | {SIGNATURE: "!"}, subject, data),
        (other | {TIME: "soon"}, subject, data),
        ({KEY: guarded.admin_key.public}, subject, data),
    ):
        assert code(await admin.send(sent_to, sent, headers)) == 401, headers
    assert code(await admin.send(subject, data, other)) == 0
    reasons = {
        it["reason"]
        for it in guarded.audited()
        if it["event"] == "login refused" and it.get("by") == "NATS"
    }
    assert any("signed" in reason for reason in reasons)


async def test_an_answer_goes_where_the_request_was_signed_for(
    guarded: GuardedNode, client: Client
) -> None:
    """Whoever hears a signed request may send it first, with a reply subject of their own."""
    admin = Asker(client, guarded.admin_key)
    subject, data = f"{PREFIX}STREAM.MSG.GET.secret", b'{"seq":1}'
    signed, theirs = admin.headers(subject, data), client.new_inbox()
    for forged in (signed, signed | {REPLY: theirs}, {**signed, REPLY: ""}):
        told = json.loads(await admin.answer(subject, data, forged, theirs))
        assert code(told) == 401
    without = {name: value for name, value in signed.items() if name != REPLY}
    assert code(json.loads(await admin.answer(subject, data, without, theirs))) == 401
    found = json.loads(await admin.answer(subject, data, signed))
    assert found["message"]["seq"] == 1, "the attempts have spent nothing"


async def test_what_nats_reports_is_not_believed_unasked(
    guarded: GuardedNode, client: Client
) -> None:
    """Anybody can write such a header."""
    info = json.dumps({"acc": "$G", "user": "admin"})
    asker = Asker(client)
    subject = f"{PREFIX}STREAM.INFO.secret"
    assert code(await asker.send(subject, b"", {"Nats-Request-Info": info})) == 404


async def test_an_answer_is_no_publish(guarded: GuardedNode, client: Client) -> None:
    """The node may publish where a client may not. The message that DIRECT.GET answers with, its
    headers included, is of the client's own making, and it names the reply subject.
    """
    admin = Asker(client, guarded.admin_key)
    for name in ("deputy", "victim"):
        config: dict[str, Any] = {"name": name, "subjects": [f"{name}.>"]}
        config |= {"allow_direct": True, "allow_rollup_hdrs": True}
        assert code(await admin.ask(f"STREAM.CREATE.{name}", config)) == 0
    await client.request("victim.a", b"kept", timeout=10)
    await client.request("deputy.a", b"forged", timeout=10, headers={"Nats-Rollup": "all"})
    subject, data = f"{PREFIX}DIRECT.GET.deputy", b'{"seq":1}'
    obeyed = await client.subscribe("$JS.EVENT.ADVISORY.API.forged")
    for reply in ("victim.a", "deputy.a", "$JS.EVENT.ADVISORY.API.forged"):
        headers = admin.headers(subject, data, reply=reply)
        await client.publish(subject, data, reply=reply, headers=headers)
    assert await admin.answer(subject, data, admin.headers(subject, data)) == b"forged"
    for name in ("deputy", "victim"):
        assert (await admin.ask(f"STREAM.INFO.{name}"))["state"]["last_seq"] == 1, name
    assert obeyed.pending_msgs == 0


async def test_a_request_that_wants_no_answer_is_not_carried_out(
    guarded: GuardedNode, client: Client
) -> None:
    """An ack, an answer or a message that is published again has no reply subject. So none of them
    is a request, whatever subject it is sent to.
    """
    admin = Asker(client, guarded.admin_key)
    config = {"name": "unasked", "subjects": ["unasked"]}
    assert code(await admin.ask("STREAM.CREATE.unasked", config)) == 0
    subject = f"{PREFIX}STREAM.DELETE.unasked"
    await client.publish(subject, b"", headers=admin.headers(subject, b"", reply=""))
    await client.publish("unasked", b"x", reply=subject)
    ack = await client.request("unasked", b"y", timeout=10)
    assert json.loads(ack.data)["seq"] == 2, "the first one was acknowledged by then"
    assert code(await admin.ask("STREAM.INFO.unasked")) == 0
