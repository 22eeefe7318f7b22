"""DescribeUserScramCredentials (50), version 0: who may log in by a password (KIP-554).

Nothing that a password could be guessed from is told.
"""

from collections import Counter
from typing import Any

from kio.schema.errors import ErrorCode

from streamlog.authn.scram import Scram
from streamlog.fairness import cooperatively
from streamlog.kafka.context import Context
from streamlog.kafka.read_barrier import newest_image
from streamlog.kafka.refusal import NAMED_TWICE
from streamlog.metadata.image.credential import Credentials
from streamlog.wire.control import Message

"""The mechanisms as Kafka counts them."""


async def handle(request: Message, _version: int, context: Context) -> Message:
    users = (await newest_image(context)).users
    asked = [it["name"] for it in request["users"] or ()] or sorted(users)
    counts = Counter(asked)
    results = []
    async for name in cooperatively(dict.fromkeys(asked)):
        if counts[name] > 1:
            results.append(_refused(name, ErrorCode.duplicate_resource, NAMED_TWICE))
        elif name not in users:
            text = f"there is no user {name!r} with a password"
            results.append(_refused(name, ErrorCode.resource_not_found, text))
        else:
            results.append(_told(name, users[name]))
    return {"error_code": ErrorCode.none, "error_message": None, "results": results}


def _told(name: str, credentials: Credentials) -> dict[str, Any]:
    infos = [
        {"mechanism": Scram(mechanism).number, "iterations": stored.iterations}
        for mechanism, stored in sorted(credentials.items())
    ]
    return {
        "user": name,
        "error_code": ErrorCode.none,
        "error_message": None,
        "credential_infos": infos,
    }


def _refused(name: str, code: ErrorCode, text: str) -> dict[str, Any]:
    return {"user": name, "error_code": code, "error_message": text, "credential_infos": []}
