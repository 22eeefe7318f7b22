"""STREAM.MSG.GET and STREAM.MSG.DELETE. DIRECT.GET, which replicas answer, is in ``direct_get``."""

import base64
from typing import Any

from streamlog.control.control import Control
from streamlog.control.messages.stored_messages import StoredMessage
from streamlog.errors import DeletionDenied, MessageErased, MessageNotFound, MessageNotStored
from streamlog.jetstream.direct_get.direct_query import message_query
from streamlog.jetstream.errors import ApiRefused, message_delete_failed, sequence_not_found
from streamlog.jetstream.requests.fields import Fields, number
from streamlog.jetstream.verbs.stream_info import rfc3339


class MessageVerbs:
    """Every method is one verb."""

    def __init__(self, control: Control) -> None:
        self._control = control

    async def delete(self, name: str, fields: Fields) -> dict[str, Any]:
        """STREAM.MSG.DELETE: of partition 0."""
        sequence = number(fields, "seq")
        try:
            await self._control.messages.delete(name, sequence - 1)
        except DeletionDenied:
            raise ApiRefused(message_delete_failed("message delete not permitted")) from None
        except MessageNotStored:
            raise ApiRefused(message_delete_failed("stream store EOF")) from None
        except MessageErased:
            raise ApiRefused(sequence_not_found(sequence)) from None
        except MessageNotFound:
            raise ApiRefused(message_delete_failed("no message found")) from None
        return {"success": True}

    async def get(self, name: str, fields: Fields) -> dict[str, Any]:
        """STREAM.MSG.GET: of partition 0."""
        found = await self._control.messages.find(name, message_query(fields))
        return {"message": message_json(found, headers=not fields.get("no_hdr", False))}


def message_json(message: StoredMessage, *, headers: bool = True) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "subject": message.subject,
        "seq": message.sequence,
        "time": rfc3339(message.timestamp_ms),
    }
    if message.data:
        fields["data"] = base64.b64encode(message.data).decode()
    if headers and message.header_block:
        fields["hdrs"] = base64.b64encode(message.header_block).decode()
    return fields
