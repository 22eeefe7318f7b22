"""What is said over NATS between a ledger and those who use it: subjects, headers, JSON.

======================================  ==========================================================
``ledger.<channel>.broadcast[.<node>]``  a record (payload, headers); answered by an ack or an error
``ledger.<channel>.deliver[.<node>]``    a ``DeliverRequest``; blocks come to the reply subject
``ledger.<channel>.info[.<node>]``       answered by the node's ``Channel.info``
======================================  ==========================================================

Without a node any that serves the channel answers. The record of a broadcast has the payload as its
value, ``Streamlog-Key`` as its key, and the other headers as its own; with ``Streamlog-Ledger:
configuration`` it is a configuration. An error is ``{"error": {"kind": ..., "message": ...}}``.

A delivery is a sequence of messages. Each has one of the headers

===========================  ====================================================================
``Streamlog-Ledger-Block``   a block's number; the payload is the block, or a part of it
``Streamlog-Ledger-Height``  a sign of life while there is nothing to deliver, and the height
``Streamlog-Ledger-End``     the last one: the number that would follow; an error in the payload
===========================  ====================================================================

and perhaps a reply subject: answer it (with anything) when the message was used. No more than
``WINDOW`` of these are left open, so a reader that answers late waits by itself. ``Streamlog-Ledger-Part:
0/3`` stands on blocks that are too large for one message; the parts come in order. Where the node
has a key, ``-Signer`` and ``-Signature`` stand on (the first part of) each block.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from streamlog.errors import CorruptData, InvalidRequest, StreamlogError
from streamlog.ledger.channel.broadcast import BroadcastAck
from streamlog.ledger.core.entry import Message
from streamlog.wire.errors import error_named

KEY_HEADER: Final = "Streamlog-Key"
NUMBER_HEADER: Final = "Streamlog-Ledger-Block"
PART_HEADER: Final = "Streamlog-Ledger-Part"
HEIGHT_HEADER: Final = "Streamlog-Ledger-Height"
END_HEADER: Final = "Streamlog-Ledger-End"
ANSWER_BYTES: Final = 512 * 1024
"""After so many bytes of blocks an answer is asked for ..."""
ANSWER_BLOCKS: Final = 256
"""... or so many blocks."""
WINDOW: Final = 4
ALIVE_S: Final = 5.0
"""Between two messages of a delivery."""
SILENCE_S: Final = 15.0
"""Who hears nothing for so long takes the other side for gone."""

_PREFIX: Final = "ledger"
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,100}")
_NODE: Final = re.compile(r"[A-Za-z0-9_@-]{1,100}(\.[A-Za-z0-9_@-]{1,100})*")


def subject(channel: str, verb: str, node: str = "") -> str:
    """Raises InvalidRequest for names that no channel or node can have."""
    if not _NAME.fullmatch(channel):
        raise InvalidRequest(f"{channel!r} is no channel's name: letters, digits, - and _")
    if node and not _NODE.fullmatch(node):
        raise InvalidRequest(f"{node!r} is no node's name: letters, digits, -, _, @ and dots")
    return ".".join((_PREFIX, channel, verb, node) if node else (_PREFIX, channel, verb))


def may_answer_at(reply: str) -> bool:
    """Whether an answer may be published under a reply subject of the asker's choice. Blocks that
    are delivered to an endpoint come back as records in other blocks, which are delivered in turn, for
    ever; and what begins with ``$`` NATS obeys.
    """
    return not reply.startswith((f"{_PREFIX}.", "$"))


def message_of(payload: bytes, headers: Mapping[str, str] | None) -> Message:
    """The record that a broadcast asks for."""
    given = dict(headers or {})
    key = given.pop(KEY_HEADER, None)
    return Message(
        None if key is None else key.encode(),
        payload,
        tuple((name, value.encode()) for name, value in given.items()),
    )


def headers_of(message: Message) -> dict[str, str]:
    """The other way round. Raises InvalidRequest for what NATS headers cannot say."""
    try:
        found = {name: (value or b"").decode() for name, value in message.headers}
        if message.key is not None:
            found[KEY_HEADER] = message.key.decode()
    except UnicodeDecodeError:
        raise InvalidRequest("NATS headers are text; the key or a header is not") from None
    if len(found) < len(message.headers) + (message.key is not None):
        raise InvalidRequest("a header stands twice, which one message over NATS cannot say")
    return found


def ack_json(ack: BroadcastAck, node: str) -> bytes:
    if ack.block is None:  # most are; these names need no escapes
        return b'{"channel": "%b", "offset": %d, "node": "%b"}' % (
            ack.channel.encode(),
            ack.offset,
            node.encode(),
        )
    fields = {"channel": ack.channel, "offset": ack.offset, "block": ack.block, "node": node}
    return json.dumps(fields).encode()


def error_json(error: StreamlogError) -> bytes:
    """On the wire; ``answer_of`` raises it on the other side."""
    text = " ".join(str(error).split())
    return json.dumps({"error": {"kind": type(error).__name__, "message": text}}).encode()


def answer_of(payload: bytes) -> dict[str, Any]:
    """Raises the error that it is; CorruptData if it is no answer."""
    try:
        answer = json.loads(payload)
        error = answer.get("error")
    except (ValueError, AttributeError):
        raise CorruptData(f"not a ledger's answer: {payload[:60]!r}") from None
    if error:
        raise error_named(str(error.get("kind")), str(error.get("message")))
    return dict(answer)
