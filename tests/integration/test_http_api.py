"""The JSON API by curl, at a real node that asks nobody who they are."""

import asyncio
import base64
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from openapi_spec_validator import validate
from prometheus_client.parser import text_string_to_metric_families

from streamlog.http.api.requests import BODY_BYTES_MAX
from tests.http_api import BASE, Answer, ask
from tools.nodes.node_process import NodeProcess
from tools.nodes.server_process import NatsServer, wait_until

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")


@pytest.fixture(scope="module")
def open_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """It takes changes from everybody."""
    directory = tmp_path_factory.mktemp("http-api")
    nats = NatsServer(directory)
    nats.start()
    node = NodeProcess.alone(
        directory / "node",
        nats.url,
        settings={
            "http": {"api_writes": True},
            "log": {"sync": "os"},
            "activity": {"enabled": True},
        },
    )
    try:
        node.start()
        yield node
    finally:
        code = node.stop() if node.is_running() else 1
        nats.kill()
    assert code == 0, node.log_text()


@pytest.fixture
def node(open_node: NodeProcess) -> NodeProcess:
    return open_node


def create(node: NodeProcess, name: str, **settings: object) -> Answer:
    return ask(node, "POST", "/streams", {"config": {"name": name, **settings}})


def test_a_stream_is_created_described_changed_purged_and_deleted(node: NodeProcess) -> None:
    made = create(node, "orders", subjects=["orders.*"], partitions=2)
    assert made.status == 200 and made.content["created"] is True
    assert create(node, "orders", subjects=["orders.*"], partitions=2).content["created"] is False
    produce(node, "orders", 5)
    found = ask(node, "GET", "/streams/orders")
    assert found.status == 200
    assert found.content["config"]["subjects"] == ["orders.*"]
    assert (found.content["messages"], len(found.content["partitions"])) == (5, 2)
    assert found.content["partitions"][0]["leader"] == 1
    listed = ask(node, "GET", "/streams?limit=1&subject=orders.7").content
    assert (listed["total"], listed["streams"][0]["config"]["name"]) == (1, "orders")
    changes = {"changes": [{"setting": "retention_messages", "text": "100"}]}
    altered = ask(node, "PATCH", "/streams/orders", changes)
    assert altered.content["config"]["retention_messages"] == 100
    assert ask(node, "POST", "/streams/orders/purge", {"partition": 0}).content == {"purged": 5}
    assert ask(node, "GET", "/streams/orders").content["messages"] == 0
    assert ask(node, "DELETE", "/streams/orders") == (204, None)
    gone = ask(node, "GET", "/streams/orders")
    assert (gone.status, gone.code) == (404, "StreamNotFound")


def test_a_message_is_read_and_erased(node: NodeProcess) -> None:
    create(node, "notes")
    produce(node, "notes", 3)
    found = ask(node, "GET", "/streams/notes/message?offset=1").content
    assert (found["offset"], base64.b64decode(found["data"])) == (1, b"message 1")
    assert ask(node, "DELETE", "/streams/notes/message?offset=1").status == 204
    assert ask(node, "GET", "/streams/notes/message?offset=1").code == "MessageErased"
    assert ask(node, "GET", "/streams/notes/message?offset=9").status == 404


def test_messages_are_read_in_pages(node: NodeProcess) -> None:
    create(node, "pages", partitions=2)
    produce(node, "pages", 5)
    page = ask(node, "GET", "/streams/pages/messages?limit=2&offset=1").content
    assert [it["offset"] for it in page["messages"]] == [1, 2]
    assert (page["next_offset"], page["high_watermark"]) == (3, 5)
    last = ask(node, "GET", "/streams/pages/messages?last=1").content["messages"]
    assert [base64.b64decode(it["data"]) for it in last] == [b"message 4"]
    assert ask(node, "GET", "/streams/pages/messages?partition=1").content["messages"] == []
    later = f"/streams/pages/messages?start_ms={last[0]['timestamp_ms'] + 60_000}"
    assert ask(node, "GET", later).content["messages"] == []
    for wrong, status in (
        ("partition=9", 404), ("offset=6", 416), ("limit=1001", 400), ("limit=0", 400),
        ("offset=1&last=1", 400), ("last=1001", 400), ("offset=-1", 400),
    ):  # fmt: skip
        assert ask(node, "GET", f"/streams/pages/messages?{wrong}").status == status, wrong


def test_nodes_and_events_are_listed(node: NodeProcess) -> None:
    (found,) = ask(node, "GET", "/nodes").content
    assert (found["node"], found["fenced"], found["port"]) == (1, False, node.kafka_port)
    assert [it["severity"] for it in ask(node, "GET", "/findings").content] in ([], ["note"])
    create(node, "eventful")

    def told() -> bool:
        events = ask(node, "GET", "/events?limit=20").content
        return any(it.get("stream") == "eventful" for it in events)

    wait_until(told, "no event of the stream's creation")
    assert ask(node, "GET", "/events?limit=1001").status == 400


def test_cluster_rules_users_and_quotas_are_there(node: NodeProcess) -> None:
    assert ask(node, "GET", "/cluster").status == 200
    assert ask(node, "GET", "/moves").content == []
    rule = {"resource_type": "topic", "name": "t", "principal": "User:alice"}
    rule |= {"operation": "read", "permission": "allow"}
    assert ask(node, "POST", "/rules", {"rules": [rule]}).status == 204
    assert len(ask(node, "GET", "/rules?principal=User:alice").content["rules"]) == 1
    assert ask(node, "GET", "/rules?principal=User:bob").content["rules"] == []
    values = {"client_id": "c", "values": {"producer_byte_rate": 1000}}
    assert ask(node, "PATCH", "/quotas", values).status == 204
    assert ask(node, "GET", "/quotas").content[0]["client_id"] == "c"
    assert ask(node, "PUT", "/users/a%2Fb", {"password": "secret-of-b"}).status == 204
    assert ask(node, "GET", "/users").content[0]["name"] == "a/b"
    assert ask(node, "DELETE", "/users/a%2Fb").status == 204
    assert ask(node, "POST", "/rebalance-leaders", {}).content == 0


def test_all_mistakes_are_named_at_once(node: NodeProcess) -> None:
    wrong = {"config": {"name": "s", "partitions": 0, "zork": 1}, "colour": "red"}
    refused = ask(node, "POST", "/streams", wrong)
    assert (refused.status, refused.code) == (400, "InvalidRequest")
    assert all(it in refused.message for it in ("config.partitions: ", "config.zork: ", "colour: "))
    refused = ask(node, "GET", "/streams?limit=x&offset=y&colour=red")
    assert all(it in refused.message for it in ("limit: ", "offset: ", "colour: "))


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("POST", "/streams", "{", 400, "InvalidRequest"),
        ("POST", "/streams", "[]", 400, "InvalidRequest"),
        ("POST", "/streams", "[" * 100_000, 400, "InvalidRequest"),
        ("POST", "/streams", '{"config":{"name":' + "9" * 10_000 + "}}", 400, "InvalidRequest"),
        ("POST", "/streams/x/purge", '{"name": "y"}', 400, "InvalidRequest"),
        ("POST", "/streams/x/purge?keep=1", "{}", 400, "InvalidRequest"),
        ("GET", "/streams", "{}", 400, "InvalidRequest"),
        ("GET", "/streams?limit=1&limit=2", None, 400, "InvalidRequest"),
        ("GET", "/streams?limit=1001", None, 400, "InvalidRequest"),
        ("GET", "/streams/__consumer_offsets_not", None, 404, "StreamNotFound"),
        ("POST", "/nodes/x/drain", "{}", 400, "InvalidRequest"),
        ("POST", "/nodes/77/drain", "{}", 404, "NodeNotFound"),
        ("POST", "/streams", None, 415, "UnsupportedMediaType"),
        ("PUT", "/streams", "{}", 405, "MethodNotAllowed"),
        ("GET", "/nothing", None, 404, "NotFound"),
    ],
)
def test_wrong_input_is_refused_in_json(
    node: NodeProcess, method: str, path: str, body: str | None, status: int, code: str
) -> None:
    refused = ask(node, method, path, body=body)
    assert (refused.status, refused.code) == (status, code), refused


def test_a_body_is_limited_and_has_a_length(node: NodeProcess) -> None:
    large = '{"config":"' + "x" * BODY_BYTES_MAX
    assert raw(node, f"Content-Length: {len(large)}", large) == 413
    assert raw(node, "Transfer-Encoding: chunked", "2\r\n{}\r\n0\r\n\r\n") == 411
    assert raw(node, "Content-Encoding: gzip\r\nContent-Length: 2", "{}") == 415


def raw(node: NodeProcess, header: str, body: str) -> int:
    async def send() -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", node.http_port)
        head = (
            f"POST {BASE}/streams HTTP/1.1\r\nHost: localhost\r\n"
            f"Content-Type: application/json\r\n{header}\r\n\r\n"
        )
        writer.write((head + body[:100_000]).encode())
        line = await asyncio.wait_for(reader.readline(), 10)
        writer.close()
        return int(line.split()[1])

    return asyncio.run(send())


@pytest.mark.parametrize(
    "headers",
    [
        ("Origin: https://evil.example",),
        ("Origin: null",),
        ("Sec-Fetch-Site: cross-site",),
        ("Sec-Fetch-Site: same-site",),
    ],
)
def test_pages_of_other_sites_change_nothing(node: NodeProcess, headers: tuple[str, ...]) -> None:
    content = {"config": {"name": "forged"}}
    refused = ask(node, "POST", "/streams", content, headers=headers)
    assert (refused.status, refused.code) == (403, "OtherSite")
    assert ask(node, "DELETE", "/streams/forged", headers=headers).status == 403
    assert ask(node, "GET", "/streams/forged").status == 404
    own = (f"Origin: http://127.0.0.1:{node.http_port}", "Sec-Fetch-Site: same-origin")
    assert ask(node, "POST", "/streams", content, headers=own).status == 200
    assert ask(node, "DELETE", "/streams/forged", headers=own).status == 204


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"]
)
def test_what_a_form_may_send_is_not_taken(node: NodeProcess, kind: str) -> None:
    refused = ask(node, "POST", "/rebalance-leaders", headers=(f"Content-Type: {kind}",))
    assert (refused.status, refused.code) == (415, "UnsupportedMediaType")


def test_the_description_is_valid_openapi(node: NodeProcess) -> None:
    described = ask(node, "GET", "/openapi.json").content
    validate(described)
    assert described["paths"]["/streams/{name}"]["get"]["operationId"] == "streams.describe"


def test_without_a_login_nothing_is_changed_unless_the_node_is_set_so(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    node = NodeProcess.alone(
        tmp_path / "node", nats_server.url, settings={"http": {"show_payloads": "off"}}
    )
    node.start()
    try:
        assert ask(node, "GET", "/streams").content["total"] == 0
        for method, path, content in (
            ("POST", "/streams", {"config": {"name": "s"}}),
            ("POST", "/streams/s/message", {"payload": "x"}),
            ("DELETE", "/streams/s", None),
            ("POST", "/features", {"level": 1}),
        ):
            refused = ask(node, method, path, content)
            assert (refused.status, refused.code) == (403, "WritesDisabled")
        refused = ask(node, "GET", "/streams/s/message?offset=0")
        assert (refused.status, refused.code) == (403, "PayloadsHidden")
    finally:
        node.kill()


def test_a_body_that_does_not_come_holds_others_up_for_a_while_only(
    tmp_path: Path, nats_server: NatsServer
) -> None:
    http = {"api_writes": True, "api_requests_max": 1, "request_timeout_ms": 2_000}
    node = NodeProcess.alone(tmp_path / "node", nats_server.url, settings={"http": http})
    node.start()
    try:
        assert ask(node, "GET", "/streams").status == 200
        with socket.create_connection(("127.0.0.1", node.http_port), timeout=20) as slow:
            slow.sendall(
                f"POST {BASE}/streams HTTP/1.1\r\nHost: localhost\r\n"
                "Content-Type: application/json\r\nContent-Length: 9\r\n\r\n".encode()
            )
            wait_until(lambda: ask(node, "GET", "/streams").status == 429, "it is not the only one")
            assert slow.recv(1_000).startswith(b"HTTP/1.1 408 ")
            while slow.recv(1_000):
                pass  # until the connection is closed
        assert ask(node, "GET", "/streams").status == 200
    finally:
        node.kill()


def produce(node: NodeProcess, stream: str, count: int) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": node.kafka})
    for number in range(count):
        producer.produce(stream, f"message {number}".encode(), partition=0)
    assert producer.flush(20) == 0


def test_requests_are_counted_for_who_watches_the_node(node: NodeProcess) -> None:
    assert ask(node, "GET", "/streams/nowhere").status == 404
    assert ask(node, "GET", "/streams?limit=none").status == 400
    told = {
        (it.name, *(it.labels[name] for name in sorted(it.labels))): it.value
        for family in text_string_to_metric_families(node.http("/metrics")[1])
        for it in family.samples
    }
    asked = ("streamlog_operations_total", "HTTP", "StreamNotFound", "streams.describe")
    assert told[asked] >= 1
    assert told["streamlog_api_refused_requests_total", "InvalidRequest"] >= 1
    assert told["streamlog_operation_seconds_total", "HTTP", "streams.describe"] > 0


def test_a_stream_that_is_full_takes_no_message(node: NodeProcess) -> None:
    settings = {"subjects": ["full"], "discard": "new", "retention_messages": 1}
    assert create(node, "full", **settings).status == 200
    message = {"payload": "first"}
    assert ask(node, "POST", "/streams/full/message", message).content["offset"] == 0
    refused = ask(node, "POST", "/streams/full/message", {"payload": "second"})
    assert (refused.status, refused.code) == (409, "StreamFull")
    assert ask(node, "GET", "/streams/full").content["messages"] == 1
