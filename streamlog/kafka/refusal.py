"""What is answered to a request, or a part of one, that is not carried out."""

from typing import Any, Final

from streamlog.errors import (
    CoordinatorLoading,
    CoordinatorUnavailable,
    NotCoordinator,
    StreamlogError,
)
from streamlog.wire.error_codes import ErrorCode
from streamlog.wire.errors import code_of


class RequestRefused(StreamlogError):
    """Kafka has a code for this fault, where we have no error of our own."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


NAMED_TWICE = "named twice in one request; nothing was done about it"


def told(error: StreamlogError) -> dict[str, Any]:
    """The fields of an answer that tell of ``error``."""
    code = error.code if isinstance(error, RequestRefused) else code_of(error)
    return {"error_code": code, "error_message": str(error)}


_OF_COORDINATORS: Final = (NotCoordinator, CoordinatorLoading, CoordinatorUnavailable)


def group_code_of(error: StreamlogError) -> ErrorCode:
    """As clients expect it in answers about groups: whatever may be asked again later makes them look for
    the coordinator again.
    """
    if error.retriable and not isinstance(error, _OF_COORDINATORS):
        return ErrorCode.coordinator_not_available
    return code_of(error)
