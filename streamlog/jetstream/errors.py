"""Our errors as JetStream's (code, err_code, description). Pure."""

from collections.abc import Callable
from typing import Any, NamedTuple

from streamlog.control.placement import NoReplacement
from streamlog.errors import (
    AuthenticationFailed,
    InvalidRequest,
    InvalidStreamConfig,
    InvalidStreamName,
    InvalidSubject,
    MessageNotFound,
    NodeNotFound,
    NotAuthorized,
    NotEnoughReplicas,
    OffsetOutOfRange,
    Overloaded,
    PartitionNotFound,
    StalePartition,
    StorageFailed,
    StorageFull,
    StreamExists,
    StreamlogError,
    StreamNotFound,
    StreamStandsStill,
)


class ApiError(NamedTuple):
    """What a client reads; ``code`` decides which exception it raises."""

    code: int
    err_code: int
    description: str

    def json(self) -> dict[str, Any]:
        return {"code": self.code, "err_code": self.err_code, "description": self.description}


class ApiRefused(Exception):
    """A request ends with this answer."""

    def __init__(self, error: ApiError) -> None:
        super().__init__(error.description)
        self.error = error


DELIVER_SUBJECT = ApiError(400, 10015, "deliver subject not valid")
RESTORED_EXISTS = ApiError(400, 10130, "stream name already in use, cannot restore")
BAD_REQUEST = ApiError(400, 10003, "bad request")
NO_PEERS = ApiError(400, 10005, "no suitable peers for placement")
NOT_CLUSTERED = ApiError(503, 10010, "JetStream clustering support required")
CONSUMER_NOT_FOUND = ApiError(404, 10014, "consumer not found")
NO_MESSAGE = ApiError(404, 10037, "no message found")
NOT_EMPTY = ApiError(400, 10038, "expected an empty request payload")
PEER_NOT_MEMBER = ApiError(400, 10040, "peer not a member")
NAME_MISMATCH = ApiError(400, 10056, "stream name in subject does not match request")
STREAM_EXISTS = ApiError(400, 10058, "stream name already in use with a different configuration")
SEALED = ApiError(400, 10109, "invalid operation on sealed stream")
STREAM_NOT_FOUND = ApiError(404, 10059, "stream not found")
REPLICAS = ApiError(500, 10074, "replicas > 1 not supported in non-clustered mode")
PEER_REMAP = ApiError(503, 10075, "peer remap failed")
PATH_IN_NAME = ApiError(400, 10128, "Stream name can not contain path separators")
REPLICAS_NEGATIVE = ApiError(400, 10133, "replicas count cannot be negative")
API_LEVEL_MISSING = ApiError(412, 10185, "JetStream minimum api level required")
OVERLOADED = ApiError(429, 10167, "too many requests")
INTERNAL = ApiError(500, 10051, "internal error")


def bad_request(why: str) -> ApiError:
    return ApiError(400, 10003, f"bad request: {why}")


def invalid_json(why: str) -> ApiError:
    return ApiError(400, 10025, f"invalid JSON: {why}")


def invalid_config(why: str) -> ApiError:
    return ApiError(500, 10052, why)


def stream_update_failed(why: str) -> ApiError:
    return ApiError(500, 10069, why)


def purge_failed(why: str) -> ApiError:
    return ApiError(500, 10110, why)


def message_delete_failed(why: str) -> ApiError:
    return ApiError(500, 10057, why)


def snapshot_failed(why: str) -> ApiError:
    return ApiError(500, 10064, f"snapshot failed: {why}")


def restore_failed(why: str) -> ApiError:
    return ApiError(500, 10062, f"restore failed: {why}")


def sequence_not_found(sequence: int) -> ApiError:
    return ApiError(400, 10043, f"sequence {sequence} not found")


def pedantic(why: str) -> ApiError:
    return ApiError(400, 10157, f"pedantic mode: {why}")


def no_peers(why: str) -> ApiError:
    return ApiError(400, 10005, why)


def no_consumer(why: str) -> ApiError:
    return ApiError(500, 10012, why)


def forbidden(why: str) -> ApiError:
    """JetStream has no code for it: NATS itself refuses those who may not."""
    return ApiError(403, 403, why)


def not_known(why: str) -> ApiError:
    return ApiError(401, 401, why)


def store_failed(why: str) -> ApiError:
    return ApiError(503, 10077, why)


def not_available(why: str) -> ApiError:
    return ApiError(503, 10008, why)


_FIXED: tuple[tuple[type[StreamlogError], ApiError], ...] = (
    (StreamExists, STREAM_EXISTS),
    (StreamNotFound, STREAM_NOT_FOUND),
    (PartitionNotFound, STREAM_NOT_FOUND),
    (OffsetOutOfRange, NO_MESSAGE),
    (MessageNotFound, NO_MESSAGE),
    (StreamStandsStill, SEALED),
    (NodeNotFound, PEER_NOT_MEMBER),
    (Overloaded, OVERLOADED),
    (NoReplacement, PEER_REMAP),
)
_BY_TEXT: tuple[tuple[type[StreamlogError], Callable[[str], ApiError]], ...] = (
    (AuthenticationFailed, not_known),
    (NotAuthorized, forbidden),
    (InvalidStreamName, invalid_config),
    (InvalidSubject, invalid_config),
    (InvalidStreamConfig, invalid_config),
    (StalePartition, not_available),
    (InvalidRequest, bad_request),
    (StorageFull, store_failed),
    (StorageFailed, store_failed),
    (NotEnoughReplicas, store_failed),
    (StreamlogError, not_available),
)


def api_error(error: Exception) -> ApiError:
    """What a client is told about ``error``; anything unforeseen is an internal error."""
    if isinstance(error, ApiRefused):
        return error.error
    for kind, fixed in _FIXED:
        if isinstance(error, kind):
            return fixed
    for kind, told in _BY_TEXT:
        if isinstance(error, kind):
            return told(str(error))
    return INTERNAL
