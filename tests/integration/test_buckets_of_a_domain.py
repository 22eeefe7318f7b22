"""Key-value buckets of clients that name a domain: they write to ``$JS.<domain>.API.$KV.<bucket>.<key>``.

The port does with it what a real nats-server does with that of its own domain, which is tried beside it.
"""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import NoRespondersError
from nats.js.api import StreamConfig
from nats.js.errors import KeyNotFoundError
from nats.js.kv import KeyValue

from tests.integration.conftest import read_stream
from tests.integration.test_port import PortNode, port_node
from tests.leaf_hub import Hub, heard_from, node_of
from tests.local_node import LocalNode, until
from tools.nodes.node_process import NodeProcess
from tools.nodes.ports import free_port
from tools.nodes.server_process import ServerProcess, listens, program, wait_until

DOMAIN: Final = "streamlog"
API: Final = f"$JS.{DOMAIN}.API."


class DomainServer(ServerProcess):
    """nats-server with JetStream in the domain that streamlog has."""

    def __init__(self, directory: Path, more: str = "") -> None:
        self.port = free_port()
        config = directory / "domain.conf"
        config.write_text(
            f'listen: "127.0.0.1:{self.port}"\n'
            f'jetstream: {{ domain: {DOMAIN}, store_dir: "{directory / "js"}" }}\n{more}'
        )
        super().__init__([program("nats-server"), "-c", str(config)], directory / "domain.log")
        self.url = f"nats://127.0.0.1:{self.port}"

    def start(self) -> None:
        self.spawn()
        wait_until(lambda: listens(self.port), "nats-server")


class Side(NamedTuple):
    client: Client
    bucket: KeyValue

    async def put(
        self, key: str, payload: bytes = b"x", headers: dict[str, str] | None = None
    ) -> dict[str, Any]:
        """As nats.go, nats.js, nats.java and the command line do with a domain."""
        return await ask(self.client, f"{API}$KV.b.{key}", payload, headers)


async def ask(
    client: Client, subject: str, payload: bytes = b"x", headers: dict[str, str] | None = None
) -> dict[str, Any]:
    answer = await client.request(subject, payload, timeout=5, headers=headers or None)
    told: dict[str, Any] = json.loads(answer.data)
    told.pop("domain", None)
    told.get("error", {}).pop("description", None)
    return told


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[DomainServer, PortNode]]:
    folder = tmp_path_factory.mktemp("domain")
    server, node = DomainServer(folder), port_node(folder / "node")
    try:
        server.start()
        node.start()
        yield server, node
        assert "Traceback" not in node.log_text()
    finally:
        node.kill()
        server.kill()


@pytest.fixture(params=["nats-server", "streamlog"])
async def side(
    request: pytest.FixtureRequest, servers: tuple[DomainServer, PortNode]
) -> AsyncIterator[Side]:
    server, node = servers
    client = await nats.connect(server.url if request.param == "nats-server" else node.url)
    jetstream = client.jetstream(domain=DOMAIN)
    yield Side(client, await jetstream.create_key_value(bucket="b", history=5))
    await jetstream.delete_key_value("b")
    await client.close()


async def test_message_is_stored_by_the_subject_without_the_domain(side: Side) -> None:
    seen: list[str] = []

    async def take(message: Msg) -> None:
        seen.append(message.subject)

    for pattern in ("$KV.>", "$JS.*.API.$KV.>"):
        await side.client.subscribe(pattern, cb=take)
    assert await side.put("colour", b"red") == {"stream": "KV_b", "seq": 1}
    assert await side.put("size.of/it") == {"stream": "KV_b", "seq": 2}
    await side.client.publish(f"{API}$KV.b.silent", b"y")
    await until(lambda: len(seen) >= 3)
    assert await side.put("last") == {"stream": "KV_b", "seq": 4}
    assert seen[:3] == ["$KV.b.colour", "$KV.b.size.of/it", "$KV.b.silent"]
    entry = await side.bucket.get("colour")
    assert (entry.value, entry.revision) == (b"red", 1)
    assert (await side.bucket.get("silent")).revision == 3
    stored = await side.client.jetstream(domain=DOMAIN).get_msg("KV_b", 1)
    assert stored.subject == "$KV.b.colour"


async def test_headers_mean_what_they_mean_without_the_domain(side: Side) -> None:
    expected = "Nats-Expected-Last-Subject-Sequence"
    assert await side.put("k", headers={expected: "0"}) == {"stream": "KV_b", "seq": 1}
    refused = await side.put("k", headers={expected: "0"})
    assert refused["error"] == {"code": 400, "err_code": 10071}
    assert (await side.put("k", headers={expected: "1", "Nats-Msg-Id": "1"}))["seq"] == 2
    again = await side.put("k", headers={"Nats-Msg-Id": "1"})
    assert again == {"stream": "KV_b", "seq": 2, "duplicate": True}
    await side.put("k", b"", {"KV-Operation": "PURGE", "Nats-Rollup": "sub"})
    assert (await side.bucket.status()).values == 1
    with pytest.raises(KeyNotFoundError) as told:
        await side.bucket.get("k")
    assert told.value.op == "PURGE"


async def test_message_that_no_bucket_takes_has_no_responders(side: Side) -> None:
    for subject in ("$KV.none.k", "$OBJ.none.k"):
        with pytest.raises(NoRespondersError):
            await side.client.request(f"{API}{subject}", b"x", timeout=5)


async def test_trace_tells_of_both_subjects(side: Side) -> None:
    """As nats-server writes it."""
    traces = await side.client.subscribe("traces")
    headers = {"Nats-Trace-Dest": "traces"}
    await side.client.publish(f"{API}$KV.b.k", b"x", headers=headers)
    events = json.loads((await traces.next_msg(timeout=5)).data)["events"]
    for event in events:
        event.pop("ts")
        event.pop("cid", None)
    assert events == [
        {"type": "in", "kind": 0, "acc": "$G", "subj": f"{API}$KV.b.k"},
        {"type": "sm", "to": "$KV.b.k"},
        {"type": "js", "stream": "KV_b", "subject": "$KV.b.k"},
    ]


# Permissions

USERS: Final[dict[str, dict[str, list[str]]]] = {
    "mapped": {"allow": ["$KV.>"]},
    "unmapped": {"allow": [f"{API}>"]},
    "not mapped": {"deny": ["$KV.>"]},
    "not unmapped": {"deny": [f"{API}$KV.>"]},
}


@pytest.mark.parametrize("name", USERS)
async def test_permission_is_that_of_the_subject_without_the_domain(
    tmp_path: Path, name: str
) -> None:
    """As nats-server has it: the lists of a user know no domain."""
    lists = USERS[name]
    theirs = DomainServer(
        tmp_path,
        "authorization { users: [ {user: admin, password: a}, {user: u, password: a, permissions: "
        f"{{publish: {json.dumps(lists)}}}}} ] }}\n",
    )
    tokens = tmp_path / "tokens"
    tokens.write_text(f"{'a' * 24} u\n{'b' * 24} admin\n")
    tokens.chmod(0o600)
    ours = port_node(
        tmp_path / "node",
        nats_listen={
            "token_file": str(tokens),
            "permissions": {"u": {"publish": lists}},
        },
    )
    told = []
    try:
        theirs.start()
        ours.start()
        for url, logins in (
            (theirs.url, [{"user": "admin", "password": "a"}, {"user": "u", "password": "a"}]),
            (ours.url, [{"token": "b" * 24}, {"token": "a" * 24}]),
        ):
            told.append(await refusals(url, *logins))
    finally:
        ours.kill()
        theirs.kill()
    assert told[0] == told[1]
    assert bool(told[0]) == (name in ("unmapped", "not mapped"))


async def refusals(url: str, admin: dict[str, str], user: dict[str, str]) -> list[str]:
    """What a client is told that puts, and by that nothing is stored."""
    errors: list[str] = []

    async def failed(error: Exception) -> None:
        errors.append(str(error))

    async with AsyncExitStack() as stack:
        first = await nats.connect(url, **admin)
        stack.push_async_callback(first.close)
        bucket = await first.jetstream(domain=DOMAIN).create_key_value(bucket="b")
        client = await nats.connect(url, error_cb=failed, **user)
        stack.push_async_callback(client.close)
        acks = await client.subscribe("_INBOX.b")
        await client.publish(f"{API}$KV.b.k", b"x", reply="_INBOX.b")
        await until(lambda: bool(errors) or acks.pending_msgs > 0)
        assert (await bucket.status()).values == (0 if errors else 1)
    return errors


# From a nats-server that the node is linked to


@pytest.fixture
def leaf(tmp_path: Path) -> Iterator[tuple[Hub, NodeProcess]]:
    hub = Hub(tmp_path)
    hub.start()
    node = node_of(hub, tmp_path / "node")
    try:
        node.start()
        yield hub, node
    finally:
        node.kill()
        hub.kill()


async def test_client_of_the_hub_writes_to_a_bucket_of_the_leafnode(
    leaf: tuple[Hub, NodeProcess],
) -> None:
    """And only so: a nats-server keeps ``$KV`` to its own domain."""
    hub, node = leaf
    async with AsyncExitStack() as stack:
        clients = []
        for url in (hub.url, node.port_url):
            clients.append(await nats.connect(url))
            stack.push_async_callback(clients[-1].close)
        theirs, ours = clients
        await heard_from(theirs, ours)
        own = await theirs.jetstream().create_key_value(bucket="b")
        bucket = await theirs.jetstream(domain=DOMAIN).create_key_value(bucket="b")
        assert await ask(theirs, f"{API}$KV.b.k", b"1") == {"stream": "KV_b", "seq": 1}
        assert await ask(ours, f"{API}$KV.b.k", b"2") == {"stream": "KV_b", "seq": 2}
        await theirs.publish(f"{API}$KV.b.k", b"3")
        assert (await ask(theirs, f"{API}$KV.b.l"))["seq"] == 4
        refused = await ask(
            theirs, f"{API}$KV.b.k", headers={"Nats-Expected-Last-Subject-Sequence": "2"}
        )
        assert refused["error"]["err_code"] == 10071
        with pytest.raises(NoRespondersError):
            await theirs.request(f"{API}$KV.none.k", b"", timeout=5)
        assert (await bucket.get("k")).value == b"3"
        assert (await own.status()).values == 0, "that of nats-server's own JetStream"
        assert await ask(theirs, "$KV.b.k") == {"stream": "KV_b", "seq": 1}, "which has this one"
        assert (await bucket.status()).values == 2
    assert [it.value for it in read_stream(node.kafka, "KV_b")][-2:] == [b"3", b"x"]


async def test_client_of_a_nats_server_that_the_node_is_a_client_of(
    nats_server: Any, tmp_path: Path
) -> None:
    async with LocalNode(tmp_path / "data", nats_server.url, default_api_prefix=False):
        client = await nats.connect(nats_server.url)
        jetstream = client.jetstream(domain=DOMAIN)
        bucket = await jetstream.create_key_value(bucket="b", direct=True)
        by_key = {"streamlog.partitions": "3", "streamlog.partition_by": "key"}
        config = StreamConfig(name="spread", subjects=["$KV.spread.>"], metadata=by_key)
        await jetstream.add_stream(config)
        assert await ask(client, f"{API}$KV.b.k", b"1") == {"stream": "KV_b", "seq": 1}
        assert await ask(client, "$KV.b.k", b"2") == {"stream": "KV_b", "seq": 2}
        await client.publish(f"{API}$KV.b.k", b"3")
        assert (await ask(client, f"{API}$KV.b.l"))["seq"] == 4
        assert (await ask(client, f"{API}$KV.spread.l"))["seq"] == 1
        assert (await bucket.get("k")).value == b"3"
        assert (await jetstream.get_msg("KV_b", 4)).subject == "$KV.b.l"
        with pytest.raises(NoRespondersError):
            await client.request(f"{API}$KV.none.k", b"", timeout=5)
        await client.close()
