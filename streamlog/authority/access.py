from collections.abc import Callable
from typing import Final, NoReturn

from streamlog.access.authorizer import Authorizer, asking_host
from streamlog.access.rules import CLUSTER_NAME, Operation, ResourceType
from streamlog.access.session import Session
from streamlog.authority.audit import Audit, Refusal
from streamlog.errors import ClusterForbidden, GroupForbidden, StreamNotFound, TopicForbidden

FOUND_MAX: Final = 20_000
"""Answers of each kind remembered for one principal; beyond it all are forgotten."""

_SEEING: Final = (Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS)
"""Whoever may do any of these may know that a stream is there."""


class Access:
    """What one principal may do, from where it asks. A refusal is audited.

    Upon the rules as they are at each call: what is taken away is gone at once.
    """

    __slots__ = ("_audit", "_authorizer", "_found", "_known", "_seen", "host", "principal")

    def __init__(
        self, session: Session, authorizer: Callable[[], Authorizer], audit: Audit
    ) -> None:
        self.principal = str(session.principal)
        self.host = asking_host(session.host)
        self._authorizer = authorizer
        self._audit = audit
        self._known: Authorizer | None = None
        self._found: dict[tuple[Operation, ResourceType, str], bool] = {}
        """By ``_known``, and no other."""
        self._seen: dict[str, bool] = {}
        """Likewise: streams that it may know of."""

    def allows(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        """Without a word to anybody."""
        key = (operation, kind, name)
        found = self._current().get(key)
        if found is None:
            assert self._known is not None
            if len(self._found) >= FOUND_MAX:
                self._found.clear()
            found = self._known.allows(self.principal, self.host, operation, kind, name)
            self._found[key] = found
        return found

    def allows_topic(self, operation: Operation, name: str) -> bool:
        return self.allows(operation, ResourceType.TOPIC, name)

    def allows_cluster(self, operation: Operation) -> bool:
        return self.allows(operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def allows_some_topic(self, operation: Operation) -> bool:
        """Whether there is one, made or not, with which it is allowed."""
        return self._authorizer().allows_some(
            self.principal, self.host, operation, ResourceType.TOPIC
        )

    def allows_topics_below(self, operation: Operation, prefix: str) -> bool:
        """With whatever has a name that begins so."""
        return self.allows_topic(operation, prefix) and not self._authorizer().denies_some_below(
            self.principal, self.host, operation, ResourceType.TOPIC, prefix
        )

    def sees(self, stream: str) -> bool:
        """It may know whether there is such a stream."""
        self._current()  # and so nothing of rules that were
        found = self._seen.get(stream)
        if found is None:
            if len(self._seen) >= FOUND_MAX:
                self._seen.clear()
            known, kind = self._known, ResourceType.TOPIC
            assert known is not None
            found = any(known.allows(self.principal, self.host, it, kind, stream) for it in _SEEING)
            self._seen[stream] = found
        return found

    def finds(self, stream: str) -> bool:
        """Likewise, of one that it asks for by name."""
        seen = self.sees(stream)
        if not seen:
            self._refused(Operation.DESCRIBE, ResourceType.TOPIC, stream)
        return seen

    def check_topic(self, operation: Operation, name: str) -> None:
        """Raises TopicForbidden, and StreamNotFound where it may not even know of it."""
        if self.allows_topic(operation, name):
            return
        self._refused(operation, ResourceType.TOPIC, name)
        if self.sees(name):
            raise TopicForbidden(f"{self.principal} may not {operation} stream {name!r}")
        raise StreamNotFound(f"there is no stream {name!r}")

    def check_creation(self, name: str) -> None:
        """Raises TopicForbidden, whether there is such a stream or not."""
        if self.allows_cluster(Operation.CREATE) or self.allows_topic(Operation.CREATE, name):
            return
        self._refused(Operation.CREATE, ResourceType.TOPIC, name)
        raise TopicForbidden(f"{self.principal} may not create stream {name!r}")

    def check_subject(self, subject: str) -> None:
        """Raises TopicForbidden: what is stored of NATS, or published there again, is the node's
        to read and to write; whoever has it done has to be allowed to CREATE a stream of that name,
        and with a wildcard all streams whose names begin with what is before it.
        """
        head = subject.partition("*")[0].partition(">")[0]
        if self.allows_cluster(Operation.CREATE):
            return
        if head == subject and self.allows_topic(Operation.CREATE, subject):
            return
        if head != subject and self.allows_topics_below(Operation.CREATE, head):
            return
        self._refused(Operation.CREATE, ResourceType.TOPIC, subject)
        raise TopicForbidden(
            f"{self.principal} may not bind subject {subject!r}: it needs CREATE for the cluster,"
            " or for topics of that name"
        )

    def check_group(self, operation: Operation, name: str) -> None:
        """Raises GroupForbidden, whether there is such a group or not."""
        if not self.allows(operation, ResourceType.GROUP, name):
            self._refused(operation, ResourceType.GROUP, name)
            raise GroupForbidden(f"{self.principal} may not {operation} group {name!r}")

    def check_cluster(self, operation: Operation) -> None:
        """Raises ClusterForbidden."""
        if not self.allows_cluster(operation):
            self._refused(operation, ResourceType.CLUSTER, CLUSTER_NAME)
            raise ClusterForbidden(f"{self.principal} may not {operation} the cluster")

    def refuse_to_clients(self, what: str) -> NoReturn:
        """Raises ClusterForbidden: nodes have no ``Access``."""
        self._refused(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, what)
        raise ClusterForbidden(f"{what}: only nodes of the cluster may ask that")

    def _current(self) -> dict[tuple[Operation, ResourceType, str], bool]:
        """What was found upon the rules of now."""
        authorizer = self._authorizer()
        if authorizer is not self._known:
            self._known = authorizer
            self._found.clear()
            self._seen.clear()
        return self._found

    def _refused(self, operation: Operation, kind: ResourceType, name: str) -> None:
        self._audit.refused(Refusal(self.principal, self.host, operation, kind, name))
