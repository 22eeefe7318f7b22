from typing import Any

import pytest

from streamlog.authn.scram import ITERATIONS_MAX, Scram, is_password, salted_password
from streamlog.config import SaslSection
from streamlog.errors import NoController
from streamlog.wire import registry
from streamlog.wire.error_codes import ErrorCode
from tests.kafka_node import KafkaNode
from tests.raw_client import RawClient

SHA_256, SHA_512 = 1, 2
SALT = b"a salt"


def setting(name: str, password: str = "secret", mechanism: int = SHA_256, **more: Any) -> Any:
    scram = Scram.SHA_256 if mechanism == SHA_256 else Scram.SHA_512
    salted = salted_password(scram, password, SALT, 4_096)
    entry = {"name": name, "mechanism": mechanism, "iterations": 4_096, "salt": SALT}
    return {**entry, "salted_password": salted, **more}


def taking(name: str, mechanism: int = SHA_256) -> Any:
    return {"name": name, "mechanism": mechanism}


async def alter(node: KafkaNode, *, change: Any = (), take: Any = ()) -> dict[str, Any]:
    """The results by user."""
    request = {"deletions": list(take), "upsertions": list(change)}
    async with RawClient(node.port) as client:
        answer = await client.ask(registry.ALTER_USER_SCRAM_CREDENTIALS, 0, request)
    return {it["user"]: it for it in answer["results"]}


async def describe(node: KafkaNode, *names: str) -> dict[str, Any]:
    request = {"users": [{"name": name} for name in names] or None}
    async with RawClient(node.port) as client:
        answer = await client.ask(registry.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, request)
    assert answer["error_code"] == 0
    return {it["user"]: it for it in answer["results"]}


async def test_users_come_and_go() -> None:
    async with KafkaNode() as node:
        done = await alter(node, change=[setting("alice"), setting("alice", mechanism=SHA_512)])
        assert done["alice"]["error_code"] == 0
        kept = node.metadata.image.users["alice"]
        assert is_password(Scram.SHA_256, "secret", kept["SCRAM-SHA-256"].credential)
        assert is_password(Scram.SHA_512, "secret", kept["SCRAM-SHA-512"].credential)
        (alice,) = (await describe(node)).values()
        assert alice["credential_infos"] == [
            {"mechanism": SHA_256, "iterations": 4_096},
            {"mechanism": SHA_512, "iterations": 4_096},
        ]
        await alter(node, change=[setting("bob")], take=[taking("alice")])
        assert list(await describe(node)) == ["alice", "bob"]
        await alter(node, take=[taking("alice", SHA_512)])
        assert list(await describe(node)) == ["bob"]


async def test_who_is_not_there_is_told_so() -> None:
    async with KafkaNode() as node:
        assert (await describe(node, "a", "b"))["a"]["error_code"] == ErrorCode.resource_not_found
        twice = await describe(node, "a", "a")
        assert twice["a"]["error_code"] == ErrorCode.duplicate_resource
        done = await alter(node, take=[taking("alice")])
        assert done["alice"]["error_code"] == ErrorCode.resource_not_found


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (setting(""), ErrorCode.unacceptable_credential),
        (setting("ANONYMOUS"), ErrorCode.unacceptable_credential),
        (setting("a\nb"), ErrorCode.unacceptable_credential),
        (setting("x" * 300), ErrorCode.unacceptable_credential),
        (setting("node"), ErrorCode.unacceptable_credential),
        (setting("a", iterations=1), ErrorCode.unacceptable_credential),
        (setting("a", iterations=ITERATIONS_MAX + 1), ErrorCode.unacceptable_credential),
        (setting("a", salt=b""), ErrorCode.unacceptable_credential),
        (setting("a", salt=b"x" * 200), ErrorCode.unacceptable_credential),
        (setting("a", salted_password=b"short"), ErrorCode.unacceptable_credential),
        (setting("a", mechanism=3), ErrorCode.unsupported_sasl_mechanism),
    ],
)
async def test_what_cannot_be_is_refused_and_the_rest_is_done(change: Any, code: int) -> None:
    passwords = SaslSection.model_construct(node_user="node")
    async with KafkaNode() as node:
        node.node_settings.__dict__["sasl"] = passwords
        done = await alter(node, change=[change, setting("bob")])
        assert done[change["name"]]["error_code"] == code
        assert done[change["name"]]["error_message"]
        assert done["bob"]["error_code"] == 0
        assert list(node.metadata.image.users) == ["bob"]


async def test_for_one_user_all_is_done_or_nothing() -> None:
    async with KafkaNode() as node:
        done = await alter(node, change=[setting("a"), setting("a", iterations=1, mechanism=2)])
        assert done["a"]["error_code"] == ErrorCode.unacceptable_credential
        done = await alter(node, change=[setting("a")], take=[taking("a")])
        assert done["a"]["error_code"] == ErrorCode.duplicate_resource
        assert not node.metadata.image.users


async def test_without_a_controller_nothing_is_changed() -> None:
    async with KafkaNode() as node:
        node.metadata.no_controller = NoController("nobody")
        done = await alter(node, change=[setting("a")])
        assert done["a"]["error_code"] == ErrorCode.not_controller
