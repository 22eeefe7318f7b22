"""SaslAuthenticate (36), versions 0 to 2: one message of a login (KIP-152).

    v1  the answer to the last message says for how long the session is good (KIP-368); log in again
        before, on the same connection, by the same mechanism and as the same principal

What goes wrong is told in one answer, late, and then the connection is closed.
"""

from kio.schema.errors import ErrorCode

from streamlog.errors import AuthenticationFailed
from streamlog.kafka.auth.peer import Peer
from streamlog.kafka.net.request_wait import RequestWait
from streamlog.wire.control import Message


async def handle(request: Message, _version: int, peer: Peer, poll: RequestWait) -> Message:
    try:
        return await peer.authenticate(bytes(request["auth_bytes"]), poll)
    except AuthenticationFailed as error:
        code = ErrorCode.illegal_sasl_state
        told = {"error_message": str(error), "auth_bytes": b"", "session_lifetime": 0}
        return {"error_code": code, **told}
