"""JoinGroup (11), versions 0 to 7: refused; see ``find_coordinator``."""

from kio.schema.errors import ErrorCode

from streamlog.server.context import Context
from streamlog.wire.control import Message


async def handle(_request: Message, _version: int, _context: Context) -> Message:
    return {
        "error_code": ErrorCode.group_authorization_failed,
        "generation_id": -1,
        "protocol_type": None,
        "protocol_name": "",
        "leader": "",
        "member_id": "",
        "members": [],
    }
