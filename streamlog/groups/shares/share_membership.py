"""ShareGroupHeartbeat, ShareGroupDescribe (KIP-932): what is other than in consumer groups. Pure.

Members subscribe to topics by their names alone. They do not say what they have, and no member has to give
anything up for another one: it has the group's epoch, and its part of the target assignment, with the first answer
after that has changed.
"""

from streamlog.coordination.effects import Now
from streamlog.coordination.keys import KEY_BYTES_MAX
from streamlog.groups.consumer_group import JOINING_EPOCH, LEAVING_EPOCH
from streamlog.groups.group import Group, State
from streamlog.groups.group_table import GroupTable
from streamlog.groups.membership.consumer_membership import ConsumerMembership, ConsumerStep
from streamlog.groups.records import CurrentAssignment
from streamlog.groups.requests import HeartbeatAnswer, HeartbeatRequest
from streamlog.groups.shares.share_group import ShareGroup
from streamlog.groups.shares.share_group_config import ShareSettings, settings_of
from streamlog.wire.error_codes import ErrorCode


class ShareMembership(ConsumerMembership):
    """The part of a coordinator that deals with members of share groups."""

    kind = ShareGroup

    def __init__(self, table: GroupTable) -> None:
        super().__init__(table, _no_downgrade)

    def share_heartbeat(self, request: HeartbeatRequest, token: object, now: Now) -> None:
        """``token`` is answered with a ``HeartbeatAnswer``."""
        self.heartbeat(request, token, now, self.make)

    def make(self, group: Group, now: Now) -> ConsumerStep | ErrorCode:
        """A new group is a share group from now on; one of another kind never becomes one."""
        is_new = group.is_idle and group.generation == 0 and group.state is State.EMPTY
        if not is_new:
            return ErrorCode.group_id_not_found
        share = ShareGroup(group.name)
        group.consumer = share
        step = ConsumerStep(group, share)

        def undo(_now: Now) -> None:
            if group.consumer is share:
                group.consumer = None

        step.undo = undo
        return step

    def settings(self, group: str) -> ShareSettings:
        """What holds for the group."""
        return settings_of(self._table.share_configs.get(group, {}), self._table.settings)

    def _wrong(self, request: HeartbeatRequest) -> HeartbeatAnswer | None:
        joins = request.epoch == JOINING_EPOCH
        texts = (request.member_id, request.rack_id, request.client_id)
        invalid: str | None = None
        if not request.member_id:
            invalid = "MemberId can't be empty."
        elif request.rack_id == "":
            invalid = "RackId can't be empty."
        elif any(text is not None and len(text.encode()) > KEY_BYTES_MAX for text in texts):
            invalid = f"MemberId, RackId and the client's id have at most {KEY_BYTES_MAX} bytes."
        elif request.epoch < LEAVING_EPOCH:
            invalid = f"MemberEpoch is {request.epoch}."
        elif joins and not request.topics:
            invalid = "SubscribedTopicNames must be set in first request."
        return None if invalid is None else HeartbeatAnswer(ErrorCode.invalid_request, invalid)

    def _may_have_missed(self, request: HeartbeatRequest, current: CurrentAssignment) -> bool:
        return True  # it says nothing of what it has

    def _says_all(self, request: HeartbeatRequest, current: CurrentAssignment) -> bool:
        return request.topics is not None or request.epoch != current.epoch

    def _heartbeat_interval_ms(self, group: Group) -> int:
        return self.settings(group.name).heartbeat_interval_ms

    def _session_timeout_ms(self, group: Group) -> int:
        return self.settings(group.name).session_timeout_ms


def _no_downgrade(_step: ConsumerStep, _now: Now) -> None:
    """No member of a share group speaks the classic protocol."""
