"""Known mistakes of consumer groups and share groups, each planted into streamlog's own code, one at a time."""

import pytest

from streamlog.coordination.effects import NONE, Now
from streamlog.groups import offsets
from streamlog.groups.consumer_group import ConsumerGroup
from streamlog.groups.group import Group, refusal
from streamlog.groups.membership.consumer_membership import ConsumerMembership
from streamlog.groups.offsets import Commits
from streamlog.groups.records import Assigned, CurrentAssignment, ShareState, StateKey
from streamlog.groups.requests import CommitRequest
from streamlog.groups.shares.share_states import ShareStates
from streamlog.shares.led_share import LedShare
from streamlog.shares.share_partition import Acquired, ReadBatches, SharePartition, Wish
from streamlog.wire.error_codes import ErrorCode

# Consumer groups


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


# Share groups


def take_acknowledgements_of_former_owners(patch: pytest.MonkeyPatch) -> None:
    """The lock is over, and another member has the record."""

    def check_owner(self: SharePartition, _member: str, offset: int) -> None:
        self._owners.setdefault(offset, "")

    patch.setattr(SharePartition, "_check_owner", check_owner)


def keep_no_deliveries(patch: pytest.MonkeyPatch) -> None:
    """As Kafka does: the next leader counts those anew that were not released."""
    inner = SharePartition.acquire

    def acquire(
        self: SharePartition, member: str, read: ReadBatches, wish: Wish, now_ms: int
    ) -> list[Acquired]:
        before = self.version
        found = inner(self, member, read, wish, now_ms)
        self.version = before
        return found

    patch.setattr(SharePartition, "acquire", acquire)


def confirm_before_it_is_saved(patch: pytest.MonkeyPatch) -> None:
    """The next leader has never heard of it."""

    async def saved(self: LedShare, _version: int) -> None:
        self._check()

    patch.setattr(LedShare, "saved", saved)


def save_for_any_leader(patch: pytest.MonkeyPatch) -> None:
    """The one before the present one may write over what that has saved."""
    inner = ShareStates.save

    def save(self: ShareStates, key: StateKey, state: ShareState, token: object, now: Now) -> None:
        found = self._found(key.group)
        if not isinstance(found, ErrorCode):
            before = found[1].states.get((key.topic_id, key.partition))
            if before is not None and before.owner != state.owner:
                state = state._replace(owner=before.owner, version=before.version + 1)
        inner(self, key, state, token, now)

    patch.setattr(ShareStates, "save", save)
