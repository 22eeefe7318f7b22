"""Users and their passwords, asked of and set at a cluster by Kafka's own requests (KIP-554)."""

import secrets
from typing import Final

from kio.schema.errors import ErrorCode

from streamlog.authn.scram import ITERATIONS, Scram, salted_password
from streamlog.client.cluster import Cluster
from streamlog.errors import InvalidRequest
from streamlog.wire import registry
from streamlog.wire.control import Message
from streamlog.wire.errors import check, error_of

SALT_BYTES: Final = 24
_NAMES: Final = {scram.number: scram.value for scram in Scram}

Users = dict[str, dict[str, int]]
"""By name, the mechanisms that each may log in by, with their iterations."""


async def list_users(cluster: Cluster, *names: str) -> Users:
    """These, as far as they are there; without names: all of them."""
    asked = [{"name": name} for name in names] or None
    request = {"users": asked}
    answer = await cluster.ask_any(registry.DESCRIBE_USER_SCRAM_CREDENTIALS, request)
    check(answer["error_code"], "the users")
    users: Users = {}
    for result in answer["results"]:
        if result["error_code"] == ErrorCode.resource_not_found:
            continue
        _check(result)
        infos = result["credential_infos"]
        users[result["user"]] = {_NAMES[it["mechanism"]]: it["iterations"] for it in infos}
    return users


async def set_password(
    cluster: Cluster, name: str, password: str, iterations: int = ITERATIONS
) -> None:
    """For every mechanism. What is sent is as good as the password: TLS is not to be left out."""
    upsertions = []
    for scram in Scram:
        salt = secrets.token_bytes(SALT_BYTES)
        salted = salted_password(scram, password, salt, iterations)
        entry = {"name": name, "mechanism": scram.number, "iterations": iterations}
        upsertions.append({**entry, "salt": salt, "salted_password": salted})
    await _alter(cluster, {"deletions": [], "upsertions": upsertions})


async def remove_user(cluster: Cluster, name: str) -> None:
    """Whatever the mechanisms. One that is not there is an InvalidRequest."""
    users = await list_users(cluster, name)
    mechanisms = users.get(name, {})
    deletions = [
        {"name": name, "mechanism": number}
        for number, mechanism in _NAMES.items()
        if mechanism in mechanisms
    ]
    if not deletions:
        raise InvalidRequest(f"there is no user {name!r}")
    await _alter(cluster, {"deletions": deletions, "upsertions": []})


async def _alter(cluster: Cluster, request: Message) -> None:
    answer = await cluster.ask_any(registry.ALTER_USER_SCRAM_CREDENTIALS, request)
    for result in answer["results"]:
        _check(result)


def _check(result: Message) -> None:
    if result["error_code"]:
        if result["error_message"]:
            raise InvalidRequest(result["error_message"])
        raise error_of(result["error_code"], f"user {result['user']}")
