"""Known mistakes of consumer groups, each planted into streamlog's own code, one at a time."""

import pytest

from streamlog.coordination.effects import NONE
from streamlog.groups import offsets
from streamlog.groups.consumer_group import ConsumerGroup
from streamlog.groups.group import Group, refusal
from streamlog.groups.membership.consumer_membership import ConsumerMembership
from streamlog.groups.offsets import Commits
from streamlog.groups.records import Assigned, CurrentAssignment
from streamlog.groups.requests import CommitRequest
from streamlog.wire.error_codes import ErrorCode


def commit_for_members_of_any_epoch(patch: pytest.MonkeyPatch) -> None:
    """What a member sent before it gave up a partition comes when another one has it."""

    def standing(consumer: ConsumerGroup, request: CommitRequest) -> ErrorCode:
        return refusal(consumer, request.caller)

    patch.setattr(offsets, "_standing", standing)


def commit_for_whoever_asks(patch: pytest.MonkeyPatch) -> None:
    """A member that was taken for dead goes on."""

    def may_commit(
        self: Commits, group: Group | None, request: CommitRequest, *, is_in_transaction: bool
    ) -> ErrorCode:
        return NONE if group is not None else ErrorCode.illegal_generation

    patch.setattr(Commits, "_may_commit", may_commit)


def give_what_others_still_have(patch: pytest.MonkeyPatch) -> None:
    """A member has its part of the target assignment at once."""
    inner = ConsumerGroup.next_assignment

    def next_assignment(
        self: ConsumerGroup, member_id: str, owned: Assigned | None
    ) -> CurrentAssignment:
        owners, self.owners = self.owners, {}
        try:
            return inner(self, member_id, owned)
        finally:
            self.owners = owners

    patch.setattr(ConsumerGroup, "next_assignment", next_assignment)


def begin_no_sessions_with_another_coordinator(patch: pytest.MonkeyPatch) -> None:
    """A member that dies while the coordinator moves has its partitions for ever."""
    patch.setattr(ConsumerMembership, "begin_sessions", lambda *_: None)
