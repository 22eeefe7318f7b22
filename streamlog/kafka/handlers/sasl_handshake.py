"""SaslHandshake (17), versions 0 and 1: by which mechanism the peer will log in (KIP-43, KIP-152).

Version 0 announces bare tokens, without headers, which clients have given up since Kafka 1.0: it is
answered with UNSUPPORTED_VERSION. Whoever is refused here is cut off after the answer.
"""

from kio.schema.errors import ErrorCode

from streamlog.errors import AuthenticationFailed
from streamlog.kafka.auth.peer import Peer
from streamlog.kafka.net.request_wait import RequestWait
from streamlog.wire.control import Message


async def handle(request: Message, version: int, peer: Peer, _poll: RequestWait) -> Message:
    try:
        return peer.handshake(request["mechanism"], version)
    except AuthenticationFailed:
        return {"error_code": ErrorCode.illegal_sasl_state, "mechanisms": []}
