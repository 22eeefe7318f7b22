"""Requests of somebody who may not do everything, straight into dispatch."""

import copy
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from streamlog.acl.rules import Rule, RuleBook
from streamlog.authn.principal import Principal
from streamlog.authn.session import Session
from streamlog.authz.audit import Audit, AuditedRefusal
from streamlog.authz.service import AuthorizationService
from streamlog.config import AuthorizationSection
from streamlog.kafka import dispatch
from streamlog.kafka.auth.peer import Peer, seen_by
from streamlog.kafka.context import Context
from streamlog.kafka.net.channel import RequestWait
from streamlog.kafka.net.response import Response

ALICE = Session(Principal.user("alice"), "10.0.0.1", "raw")


def rule(text: str, permission: str = "allow") -> Rule:
    """As in ``read topic orders-*``."""
    operation, kind, name = text.split(" ")
    prefixed = len(name) > 1 and name.endswith("*")
    return Rule.of(
        permission=permission,
        principal="User:alice",
        operation=operation,
        resource_type=kind,
        pattern_type="prefixed" if prefixed else "literal",
        name=name.removesuffix("*") if prefixed else name,
    )


class Heard(Audit):
    """Remembers what it is told, and tells nobody."""

    def __init__(self) -> None:
        super().__init__()
        self.refusals: list[AuditedRefusal] = []
        self.acts: list[tuple[str, tuple[str, ...]]] = []

    def refused(self, refusal: AuditedRefusal) -> None:
        self.refusals.append(refusal)

    def acted(self, session, act, resources=(), outcome="none", **_):  # type: ignore[no-untyped-def]
        self.acts.append((act, tuple(resources)))


class Asker:
    """One principal at one node. ``rules`` may be changed at any time."""

    def __init__(
        self,
        context: Context,
        *rules: str,
        session: Session = ALICE,
        super_users: tuple[str, ...] = (),
        enforced: bool = True,
        audit: Audit | None = None,
    ) -> None:
        """``audit``: instead of the one that remembers what it is told."""
        self.rules = RuleBook.of(*map(rule, rules))
        self.audit = Heard()
        used = self.audit if audit is None else audit
        authorization = AuthorizationService(
            AuthorizationSection(super_users=super_users),
            lambda: self.rules,
            used,
            enforced=enforced,
        )
        service = copy.copy(context.control_service)
        if service is not None:
            service.audit, service.authorization = used, authorization
        node = replace(context, authorization=authorization, audit=used, control_service=service)
        self._peer = Peer(node, session.host)
        self._peer.context = seen_by(session, node)
        self._threads: Executor = ThreadPoolExecutor(1)

    @property
    def context(self) -> Context:
        return self._peer.context

    async def ask(self, request: bytes) -> bytes | None:
        """The answer's frame without records, if there is one. Raises what dispatch does."""
        no_channel: Any = None
        poll = RequestWait(no_channel)
        poll.end()  # whatever would wait is answered now
        answer = await dispatch.answer(request, self._peer, poll, self._threads)
        if answer is None:
            return None
        if isinstance(answer, Response):
            answer.close()
            return b"".join(answer.pieces)
        answer.end()
        return bytes(answer.frame())

    def close(self) -> None:
        self._threads.shutdown()
