"""The messages that a JetStream request asks for: STREAM.MSG.GET one, DIRECT.GET one or many. Pure."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Self

from streamlog.control.messages.message_query import MessageQuery
from streamlog.jetstream.errors import BAD_REQUEST, ApiError, ApiRefused
from streamlog.jetstream.requests.fields import Fields
from streamlog.jetstream.requests.request_schemas import MESSAGE
from streamlog.jetstream.requests.schema import WrongType, read_json

EMPTY_REQUEST: Final = ApiError(408, 0, "Empty Request")
BAD_DIRECT_REQUEST: Final = ApiError(408, 0, "Bad Request")
MALFORMED_REQUEST: Final = ApiError(408, 0, "Malformed Request")
"""Statuses of DIRECT.GET, which has no JSON to put an error in."""


def message_query(fields: Fields) -> MessageQuery:
    """Of STREAM.MSG.GET. Raises ApiRefused."""
    query = read_message_query(fields)
    if fields.get("batch", 0) > 0 or fields.get("max_bytes", 0) > 0:
        raise ApiRefused(BAD_REQUEST)
    if query.is_empty or query.is_contradictory:
        raise ApiRefused(BAD_REQUEST)
    return query


def read_message_query(fields: Fields) -> MessageQuery:
    """Whatever it says."""
    return MessageQuery(
        sequence=fields.get("seq", 0),
        last=fields.get("last_by_subj", ""),
        following=fields.get("next_by_subj", ""),
        start_ms=fields.get("start_time"),
    )


class DirectQuery(NamedTuple):
    """What DIRECT.GET asks for: one message, ``batch`` of them, or the last of each subject."""

    message: MessageQuery = MessageQuery()
    no_headers: bool = False
    batch: int = 0
    """At most so many; 0: one, and no mark at the end."""
    bytes_max: int = 0
    """No further message once so many have been sent; 0: as many as the node lets through."""
    multi_last: tuple[str, ...] = ()
    up_to_sequence: int = 0
    up_to_ms: int | None = None

    @classmethod
    def of(cls, body: bytes) -> Self:
        """Raises Refused with a status."""
        if not body:
            raise ApiRefused(EMPTY_REQUEST)
        query = cls._of_json(body)
        if query.message.is_empty and not query.multi_last:
            raise ApiRefused(EMPTY_REQUEST)
        if query._is_contradictory:
            raise ApiRefused(BAD_DIRECT_REQUEST)
        return query

    @classmethod
    def of_subject(cls, subject: str, body: bytes) -> Self:
        """The last message on the subject that ends the request's own. Raises Refused."""
        query = cls._of_json(body) if body else cls()
        if not subject or query != cls(no_headers=query.no_headers, bytes_max=query.bytes_max):
            raise ApiRefused(BAD_DIRECT_REQUEST)
        return query._replace(message=query.message._replace(last=subject))

    @classmethod
    def _of_json(cls, body: bytes) -> Self:
        try:
            fields = MESSAGE.read(read_json(body), strict=False)
        except (ApiRefused, WrongType):
            raise ApiRefused(MALFORMED_REQUEST) from None
        return cls(
            message=read_message_query(fields),
            no_headers=fields.get("no_hdr", False),
            batch=fields.get("batch", 0),
            bytes_max=fields.get("max_bytes", 0),
            multi_last=tuple(fields.get("multi_last", ())),
            up_to_sequence=fields.get("up_to_seq", 0),
            up_to_ms=fields.get("up_to_time"),
        )

    @property
    def _is_contradictory(self) -> bool:
        message = self.message
        return bool(
            message.is_contradictory
            or (message.last and (self.batch > 0 or self.multi_last))
            or (message.following and self.multi_last)
            or (self.up_to_sequence and self.up_to_ms is not None)
        )

    def json(self) -> dict[str, Any]:
        """As it travels to another node."""
        return {**self._asdict(), "message": self.message._asdict()}

    @classmethod
    def of_travelled(cls, fields: Mapping[str, Any]) -> Self:
        """What ``json`` has made. Raises KeyError, TypeError for anything else."""
        message = MessageQuery(**fields["message"])
        rest = {**fields, "message": message, "multi_last": tuple(fields["multi_last"])}
        return cls(**rest)
