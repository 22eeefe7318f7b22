from typing import Final, NoReturn

from streamlog.acl.authorizer import Authorizer, asking_host
from streamlog.acl.rules import CLUSTER_NAME, Operation, ResourceType
from streamlog.authn.session import Session
from streamlog.authz.audit import Audit, AuditedRefusal, shortened
from streamlog.authz.decision_cache import DecisionCache, Question
from streamlog.errors import (
    ClusterForbidden,
    GroupForbidden,
    StreamNotFound,
    TopicForbidden,
    TransactionalIdForbidden,
)
from streamlog.metadata.stream.origin_circles import all_origins
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.metadata.stream.stream_subjects import bound_subjects

_SEEING: Final = (Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS)
"""A principal that may do any of these may know that a stream is there."""


class Permissions:
    """What one principal may do, from where it asks. A refusal is audited.

    By the rules as they are at each call: what is taken away is gone at once.
    """

    __slots__ = ("_audit", "_findings", "host", "principal")

    def __init__(self, session: Session, findings: DecisionCache, audit: Audit) -> None:
        self.principal = str(session.principal)
        self.host = asking_host(session.host)
        self._findings = findings
        self._audit = audit

    @property
    def rules(self) -> Authorizer:
        """As they are now; others are another object."""
        return self._findings.authorizer

    def allows(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        """Without a word to anybody."""
        question = Question(self.principal, self.host, operation, kind, name)
        return self._findings.answer(
            question, lambda rules: rules.allows(self.principal, self.host, operation, kind, name)
        )

    def allows_topic(self, operation: Operation, name: str) -> bool:
        return self.allows(operation, ResourceType.TOPIC, name)

    def allows_cluster(self, operation: Operation) -> bool:
        return self.allows(operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def allows_some_topic(self, operation: Operation) -> bool:
        """Whether there is one, made or not, with which it is allowed."""
        return self._findings.authorizer.allows_some(
            self.principal, self.host, operation, ResourceType.TOPIC
        )

    def allows_topics_below(self, operation: Operation, prefix: str) -> bool:
        """With whatever has a name that begins so."""
        return self._allows_below(operation, ResourceType.TOPIC, prefix)

    def _allows_below(self, operation: Operation, kind: ResourceType, prefix: str) -> bool:
        rules = self._findings.authorizer
        return self.allows(operation, kind, prefix) and not rules.denies_some_below(
            self.principal, self.host, operation, kind, prefix
        )

    def sees(self, stream: str) -> bool:
        """It may know whether there is such a stream."""
        kind = ResourceType.TOPIC
        question = Question(self.principal, self.host, None, kind, stream)
        return self._findings.answer(
            question,
            lambda rules: any(
                rules.allows(self.principal, self.host, it, kind, stream) for it in _SEEING
            ),
        )

    @property
    def sees_all(self) -> bool:
        """It may know of every stream, made or not."""
        return self.allows_topics_below(Operation.DESCRIBE, "")

    def finds(self, stream: str) -> bool:
        """As ``sees``, of one that it asks for by name."""
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
            raise TopicForbidden(f"{self.principal} may not {operation} stream {shortened(name)!r}")
        raise StreamNotFound(f"there is no stream {shortened(name)!r}")

    def grants_topic(self, operation: Operation, name: str) -> bool:
        """As ``check_topic``, for who answers by itself: a refusal is audited."""
        if self.allows_topic(operation, name):
            return True
        self._refused(operation, ResourceType.TOPIC, name)
        return False

    def check_creation(self, name: str) -> None:
        """Raises TopicForbidden, whether there is such a stream or not."""
        if self.allows_cluster(Operation.CREATE) or self.allows_topic(Operation.CREATE, name):
            return
        self._refused(Operation.CREATE, ResourceType.TOPIC, name)
        raise TopicForbidden(f"{self.principal} may not create stream {shortened(name)!r}")

    def check_bindings(self, config: StreamConfig, known: StreamConfig | None = None) -> None:
        """What a stream takes from NATS and has published there, beyond what it did as ``known``.
        Raises TopicForbidden.
        """
        before = frozenset[str]() if known is None else bound_subjects(known)
        for subject in sorted(bound_subjects(config) - before):
            self.check_subject(subject)
        if config.is_fed:
            read = set() if known is None else {it.name for it in all_origins(known)}
            for name in sorted({it.name for it in all_origins(config)} - read):
                self.check_topic(Operation.READ, name)

    def check_subject(self, subject: str) -> None:
        """Raises TopicForbidden: what is stored of NATS, or published there again, is the node's
        to read and to write; the caller has to be allowed to CREATE a stream of that name,
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
            f"{self.principal} may not bind subject {shortened(subject)!r}: it needs CREATE for the"
            " cluster, or for topics of that name"
        )

    def check_group(self, operation: Operation, name: str) -> None:
        """Raises GroupForbidden, whether there is such a group or not."""
        if not self.allows(operation, ResourceType.GROUP, name):
            self._refused(operation, ResourceType.GROUP, name)
            raise GroupForbidden(f"{self.principal} may not {operation} group {shortened(name)!r}")

    def sees_group(self, name: str) -> bool:
        """A list may name it, without a word to anybody: as in Kafka with DESCRIBE of it, or of the cluster."""
        describe = Operation.DESCRIBE
        return self.allows_cluster(describe) or self.allows(describe, ResourceType.GROUP, name)

    def check_transactional_id(self, operation: Operation, name: str) -> None:
        """Raises TransactionalIdForbidden, whether there is such an id or not."""
        if not self.allows(operation, ResourceType.TRANSACTIONAL_ID, name):
            self._refused(operation, ResourceType.TRANSACTIONAL_ID, name)
            raise TransactionalIdForbidden(
                f"{self.principal} may not {operation} transactional id {shortened(name)!r}"
            )

    def sees_transactional_id(self, name: str) -> bool:
        """A list may name it, without a word to anybody."""
        return self.allows(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, name)

    @property
    def sees_all_transactional_ids(self) -> bool:
        """A list may name every one, whatever comes."""
        return self._allows_below(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, "")

    def check_cluster(self, operation: Operation) -> None:
        """Raises ClusterForbidden."""
        if not self.allows_cluster(operation):
            self._refused(operation, ResourceType.CLUSTER, CLUSTER_NAME)
            raise ClusterForbidden(f"{self.principal} may not {operation} the cluster")

    def refuse_to_clients(self, what: str) -> NoReturn:
        """Raises ClusterForbidden: nodes have no ``Permissions``."""
        self._refused(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, what)
        raise ClusterForbidden(f"{what}: only nodes of the cluster may ask that")

    def _refused(self, operation: Operation, kind: ResourceType, name: str) -> None:
        self._audit.refused(AuditedRefusal(self.principal, self.host, operation, kind, name))
