"""All operations, for one caller: what adapters ask."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final

from streamlog.control.cluster import ClusterOperations
from streamlog.control.groups import GroupOperations
from streamlog.control.messages.operations import MessageOperations
from streamlog.control.operation import Caller, OperationSpec, specs_of
from streamlog.control.placement import PlacementOperations
from streamlog.control.security import QuotaOperations, RuleOperations, UserOperations
from streamlog.control.service import ControlService
from streamlog.control.streams import StreamOperations
from streamlog.control.transactions import TransactionOperations
from streamlog.errors import InvalidRequest

OPERATIONS: Final[dict[str, OperationSpec]] = {
    name: spec
    for kind in (
        StreamOperations,
        MessageOperations,
        GroupOperations,
        TransactionOperations,
        PlacementOperations,
        ClusterOperations,
        UserOperations,
        RuleOperations,
        QuotaOperations,
    )
    for name, spec in specs_of(kind).items()
}
"""All that may be asked for by name."""


class Control:
    """The operations for one caller, by what they are about."""

    def __init__(self, service: ControlService, caller: Caller) -> None:
        self._service = service
        self.caller = caller

    @cached_property
    def streams(self) -> StreamOperations:
        return StreamOperations(self._service, self.caller)

    @cached_property
    def messages(self) -> MessageOperations:
        return MessageOperations(self._service, self.caller)

    @cached_property
    def groups(self) -> GroupOperations:
        return GroupOperations(self._service, self.caller)

    @cached_property
    def transactions(self) -> TransactionOperations:
        return TransactionOperations(self._service, self.caller)

    @cached_property
    def placement(self) -> PlacementOperations:
        return PlacementOperations(self._service, self.caller)

    @cached_property
    def cluster(self) -> ClusterOperations:
        return ClusterOperations(self._service, self.caller)

    @cached_property
    def users(self) -> UserOperations:
        return UserOperations(self._service, self.caller)

    @cached_property
    def rules(self) -> RuleOperations:
        return RuleOperations(self._service, self.caller)

    @cached_property
    def quotas(self) -> QuotaOperations:
        return QuotaOperations(self._service, self.caller)

    async def call(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """An operation by its name, with JSON's types; its result in these. Raises what it does, and
        InvalidRequest for one that there is not, or for other arguments than it takes.
        """
        spec = OPERATIONS.get(name)
        if spec is None:
            raise InvalidRequest(f"there is no operation {name[:60]!r}")
        return await self.run(spec, spec.read(arguments))

    async def run(self, spec: OperationSpec, given: Mapping[str, Any]) -> Any:
        """The same, with arguments that ``spec`` has read."""
        result = await spec.call(getattr(self, spec.group), **given)
        return spec.dump(result)
