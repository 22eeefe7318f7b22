"""What nodes ask of each other for the management API: over NATS, each on a subject of its own.

``$JS.<domain>.NODE.<node id>.<verb>``, beside the API's own prefix, so that one permission covers
both. A request is JSON; an answer is one line of JSON, and after it a message's bytes as they are.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import nats.errors
from nats.aio.client import Client

from streamlog.errors import CorruptData, NodeUnreachable, NotLeader, RequestTimedOut
from streamlog.jetstream.auth.signed_request import Sign, ask
from streamlog.jetstream.errors import ApiError, ApiRefused, api_error
from streamlog.model import NodeId


class NodeAnswer(NamedTuple):
    """``fields`` are JSON."""

    fields: Mapping[str, Any]
    data: bytes = b""


def subject_of(domain: str, node_id: NodeId, verb: str) -> str:
    return f"$JS.{domain}.NODE.{node_id}.{verb}"


def encode_answer(answer: NodeAnswer) -> bytes:
    return json.dumps(answer.fields, separators=(",", ":")).encode() + b"\n" + answer.data


def encode_error(error: Exception) -> bytes:
    """A node that is not the leader says so in a way that cannot be mistaken."""
    if isinstance(error, NotLeader):
        return encode_answer(NodeAnswer({"not_leader": str(error)}))
    return encode_answer(NodeAnswer({"error": api_error(error).json()}))


def decode_answer(data: bytes) -> NodeAnswer:
    """Raises NotLeader, Refused with the error of the answer, and CorruptData."""
    line, newline, rest = data.partition(b"\n")
    try:
        fields = json.loads(line) if newline else None
        if isinstance(fields, dict):
            if "not_leader" in fields:
                raise NotLeader(str(fields["not_leader"]))
            if "error" in fields:
                raise ApiRefused(ApiError(**fields["error"]))
            return NodeAnswer(fields, rest)
    except (ValueError, TypeError):
        pass
    raise CorruptData("another node's answer does not decode")


class NodeRpc:
    """Asks other nodes."""

    def __init__(
        self,
        client: Callable[[], Client],
        domain: str,
        sign: Sign = lambda _subject, _data, _reply: None,
    ) -> None:
        self._client = client
        self._domain = domain
        self._sign = sign

    async def ask(
        self, node_id: NodeId, verb: str, fields: Mapping[str, Any], *, timeout_s: float
    ) -> NodeAnswer:
        """Raises what ``decode_answer`` does, NodeUnreachable: it has not been heard, and
        RequestTimedOut: it may have been.
        """
        subject = subject_of(self._domain, node_id, verb)
        try:
            data = json.dumps(fields, separators=(",", ":")).encode()
            message = await ask(self._client(), subject, data, self._sign, timeout_s=timeout_s)
        except nats.errors.NoRespondersError:
            raise NodeUnreachable(f"node {node_id} is not at this NATS server") from None
        except nats.errors.TimeoutError:
            raise RequestTimedOut(f"node {node_id} did not answer in {timeout_s} s") from None
        except nats.errors.Error as error:
            raise NodeUnreachable(f"node {node_id}: {error}") from None
        return decode_answer(message.data)
