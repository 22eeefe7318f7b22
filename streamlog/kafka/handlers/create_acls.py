"""CreateAcls (30), versions 1 to 3: more access rules (KIP-140, KIP-290).

Each by itself as far as it is wrong; those that are right are added together. What is there already
is a success.
"""

from typing import Any

from kio.schema.errors import ErrorCode

from streamlog.acl.rules import Rule
from streamlog.errors import StreamlogError
from streamlog.kafka.configs.acl_codec import read_rule
from streamlog.kafka.context import Context
from streamlog.kafka.refusal import told
from streamlog.metadata.commands import AddAccessRules
from streamlog.wire.control import Message


async def handle(request: Message, _version: int, context: Context) -> Message:
    results: list[dict[str, Any] | None] = []
    rules: list[Rule] = []
    for creation in request["creations"]:
        try:
            rules.append(read_rule(creation))
            results.append(None)
        except StreamlogError as error:
            results.append(told(error))
    outcome: dict[str, Any] = {"error_code": ErrorCode.none, "error_message": None}
    if rules:
        try:
            await context.metadata.request(AddAccessRules(rules=tuple(rules)))
        except StreamlogError as error:
            outcome = told(error)
    return {"results": [outcome if result is None else result for result in results]}
