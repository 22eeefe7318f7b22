"""DescribeUserScramCredentials, AlterUserScramCredentials."""

import secrets
from base64 import b64encode
from collections import Counter, defaultdict
from typing import Any, Final, NamedTuple, get_args

from streamlog.authn.scram import ITERATIONS_MAX, ITERATIONS_MIN, Scram, credential_of
from streamlog.errors import InvalidRequest, StreamlogError
from streamlog.fairness import cooperatively
from streamlog.kafka.context import Context
from streamlog.kafka.read_barrier import newest_image
from streamlog.kafka.refusal import NAMED_TWICE, RequestRefused, told
from streamlog.metadata.commands import AlterUser
from streamlog.metadata.image.credential import Credentials, StoredCredential, check_user_name
from streamlog.model import ScramName
from streamlog.wire.api_messages import Message
from streamlog.wire.error_codes import ErrorCode

"""The mechanisms as Kafka counts them."""


async def describe_user_scram_credentials(
    request: Message, _version: int, context: Context
) -> Message:
    """DescribeUserScramCredentials (50), version 0: who may log in by a password (KIP-554).

    Nothing that a password could be guessed from is told.
    """
    try:
        users = {it.name: it.iterations for it in await context.control.users.list()}
    except StreamlogError as error:
        return {**told(error), "results": []}
    asked = [it["name"] for it in request["users"] or ()] or sorted(users)
    counts = Counter(asked)
    results = []
    async for name in cooperatively(dict.fromkeys(asked)):
        if counts[name] > 1:
            results.append(_not_described(name, ErrorCode.duplicate_resource, NAMED_TWICE))
        elif name not in users:
            text = f"there is no user {name!r} with a password"
            results.append(_not_described(name, ErrorCode.resource_not_found, text))
        else:
            results.append(_described(name, users[name]))
    return {"error_code": ErrorCode.none, "error_message": None, "results": results}


def _described(name: str, iterations: dict[str, int]) -> dict[str, Any]:
    infos = [
        {"mechanism": Scram(mechanism).number, "iterations": count}
        for mechanism, count in iterations.items()
    ]
    return {
        "user": name,
        "error_code": ErrorCode.none,
        "error_message": None,
        "credential_infos": infos,
    }


def _not_described(name: str, code: ErrorCode, text: str) -> dict[str, Any]:
    return {"user": name, "error_code": code, "error_message": text, "credential_infos": []}


SECRET_BYTES: Final = 32
SALT_BYTES_MAX: Final = 128
_BY_NUMBER: Final[dict[int, ScramName]] = {Scram(name).number: name for name in get_args(ScramName)}


class _UserAlterations(NamedTuple):
    """What is asked for one user."""

    deletions: list[Message]
    upsertions: list[Message]


async def alter_user_scram_credentials(
    request: Message, _version: int, context: Context
) -> Message:
    """AlterUserScramCredentials (51), version 0: passwords set and taken away (KIP-554).

    The client salts and hashes the password; what is kept are the two keys made of that. All that is
    asked for one user is done, or nothing of it.
    """
    by_name: dict[str, _UserAlterations] = defaultdict(lambda: _UserAlterations([], []))
    for deletion in request["deletions"]:
        by_name[deletion["name"]].deletions.append(deletion)
    for upsertion in request["upsertions"]:
        by_name[upsertion["name"]].upsertions.append(upsertion)
    results: list[dict[str, Any]] = []
    async for name, asked in cooperatively(by_name.items()):
        outcome: dict[str, Any] = {"error_code": ErrorCode.none, "error_message": None}
        try:
            command = _credential_command(name, asked, context)
            await _check_there(command, context)
            await context.control.users.alter(name, command.changed, command.removed)
        except StreamlogError as error:
            outcome = told(error)
        results.append({"user": name, **outcome})
    return {"results": results}


def _credential_command(name: str, asked: _UserAlterations, context: Context) -> AlterUser:
    """Raises Refused."""
    _check_name(name, context)
    deletions, upsertions = asked
    counts = Counter(it["mechanism"] for it in (*deletions, *upsertions))
    if any(count > 1 for count in counts.values()):
        raise RequestRefused(ErrorCode.duplicate_resource, NAMED_TWICE)
    removed = tuple(_mechanism(it["mechanism"]) for it in deletions)
    changed: Credentials = {_mechanism(it["mechanism"]): _stored(it) for it in upsertions}
    secret = b64encode(secrets.token_bytes(SECRET_BYTES)).decode()
    return AlterUser(name=name, changed=changed, removed=removed, decoy_secret=secret)


def _check_name(name: str, context: Context) -> None:
    try:
        check_user_name(name)
    except InvalidRequest as error:
        raise RequestRefused(ErrorCode.unacceptable_credential, str(error)) from None
    if name == context.node_settings.sasl.node_user:
        text = "that is whom nodes log in as: its password is in sasl.node_password_file"
        raise RequestRefused(ErrorCode.unacceptable_credential, text)


async def _check_there(command: AlterUser, context: Context) -> None:
    """Raises Refused. The controller looks again."""
    if command.removed:
        known = (await newest_image(context)).users.get(command.name, {})
        if missing := [it for it in command.removed if it not in known]:
            text = f"the user has no password for {', '.join(missing)}"
            raise RequestRefused(ErrorCode.resource_not_found, text)


def _mechanism(number: int) -> ScramName:
    found = _BY_NUMBER.get(number)
    if found is None:
        text = f"mechanism {number}: 1 (SCRAM-SHA-256) and 2 (SCRAM-SHA-512) are known"
        raise RequestRefused(ErrorCode.unsupported_sasl_mechanism, text)
    return found


def _stored(upsertion: Message) -> StoredCredential:
    scram = Scram(_mechanism(upsertion["mechanism"]))
    iterations, salt = upsertion["iterations"], bytes(upsertion["salt"])
    salted = bytes(upsertion["salted_password"])
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        text = f"{iterations} iterations: {ITERATIONS_MIN} to {ITERATIONS_MAX} are allowed"
        raise RequestRefused(ErrorCode.unacceptable_credential, text)
    if not 0 < len(salt) <= SALT_BYTES_MAX:
        text = f"a salt has 1 to {SALT_BYTES_MAX} bytes"
        raise RequestRefused(ErrorCode.unacceptable_credential, text)
    if len(salted) != scram.size_bytes:
        text = f"a salted password of {scram.value} has {scram.size_bytes} bytes"
        raise RequestRefused(ErrorCode.unacceptable_credential, text)
    return StoredCredential.of(credential_of(scram, salted, salt, iterations))
