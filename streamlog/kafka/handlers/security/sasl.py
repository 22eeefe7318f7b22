"""SaslHandshake, SaslAuthenticate."""

from streamlog.errors import AuthenticationFailed
from streamlog.kafka.auth.peer import Peer
from streamlog.kafka.net.channel import RequestWait
from streamlog.wire.api_messages import Message
from streamlog.wire.error_codes import ErrorCode


async def sasl_handshake(request: Message, version: int, peer: Peer, _poll: RequestWait) -> Message:
    """SaslHandshake (17), versions 0 and 1: by which mechanism the peer will log in (KIP-43, KIP-152).

    Version 0 announces bare tokens, without headers, which clients have given up since Kafka 1.0: it is
    answered with UNSUPPORTED_VERSION. A client that is refused here is cut off after the answer.
    """
    try:
        return peer.handshake(request["mechanism"], version)
    except AuthenticationFailed:
        return {"error_code": ErrorCode.illegal_sasl_state, "mechanisms": []}


async def sasl_authenticate(
    request: Message, _version: int, peer: Peer, poll: RequestWait
) -> Message:
    """SaslAuthenticate (36), versions 0 to 2: one message of a login (KIP-152).

        v1  the answer to the last message says for how long the session is good (KIP-368); log in again
            before, on the same connection, by the same mechanism and as the same principal

    What goes wrong is told in one answer, late, and then the connection is closed.
    """
    try:
        return await peer.authenticate(bytes(request["auth_bytes"]), poll)
    except AuthenticationFailed as error:
        code = ErrorCode.illegal_sasl_state
        told = {"error_message": str(error), "auth_bytes": b"", "session_lifetime": 0}
        return {"error_code": code, **told}
