"""DeleteTopics (20), versions 1 to 6: streams and all their records.

v5  errors have a text
v6  a topic may be named by its id
"""

from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode

from streamlog.acl.rules import Operation
from streamlog.errors import StreamlogError, StreamNotFound
from streamlog.fairness import cooperatively
from streamlog.kafka.auth.resource_checks import check_topic, stream_named
from streamlog.kafka.context import Context
from streamlog.wire.control import Message
from streamlog.wire.errors import code_of


async def handle(request: Message, _version: int, context: Context) -> Message:
    named = [{"name": name, "topic_id": None} for name in request.get("topic_names", ())]
    return {
        "responses": [
            await _delete(topic["name"], topic["topic_id"], context)
            async for topic in cooperatively((*named, *request.get("topics", ())))
        ]
    }


async def _delete(name: str | None, topic_id: UUID | None, context: Context) -> dict[str, Any]:
    image = context.metadata.image
    if name is None:
        name = stream_named(topic_id, image)
        if name is None:
            return _result(None, topic_id, ErrorCode.unknown_topic_id, "no stream has this id")
    stream = image.streams.get(name)
    try:
        if stream is None:
            raise StreamNotFound(f"there is no stream {name!r}")
        check_topic(Operation.DELETE, name, context)
        await context.metadata.delete_stream(name, topic_id)
    except StreamlogError as error:
        return _result(name, topic_id, code_of(error), str(error))
    return _result(name, stream.stream_id, ErrorCode.none, None)


def _result(
    name: str | None, topic_id: UUID | None, code: ErrorCode, message: str | None
) -> dict[str, Any]:
    return {"name": name, "topic_id": topic_id, "error_code": code, "error_message": message}
