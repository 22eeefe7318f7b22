import asyncio
import logging
import os
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Final

import aiofiles.os

from streamlog.acl.authorizer import Authorizer
from streamlog.acl.rules import NO_RULES, RuleBook
from streamlog.authn.session import Session
from streamlog.authz.audit import Audit
from streamlog.authz.decision_cache import DecisionCache
from streamlog.authz.permissions import Permissions
from streamlog.authz.rule_file import read_rules, reread_rules
from streamlog.condition import Condition
from streamlog.config import AuthorizationSection
from streamlog.errors import ConfigError

logger = logging.getLogger(__name__)

RULES_NOT_READ_AGAIN: Final = Condition(
    "SL-0610",
    "access rules not read again: those of before hold",
    "correct the file: it is read again by itself",
    meaning="The file with access rules changed, and is wrong.",
)

KEPT_MAX: Final = 1_000
"""Principals, with their addresses, of whom it is remembered what they may do."""
Stamp = tuple[int, int, int] | None
CHECK_S: Final = 1.0
"""How often it is looked whether the file has changed."""


class AuthorizationService:
    """The rules in force on this node: those of the metadata and those of its file, together."""

    def __init__(
        self,
        settings: AuthorizationSection,
        rules: Callable[[], RuleBook],
        audit: Audit,
        *,
        enforced: bool,
    ) -> None:
        """``rules``: of the metadata, as they are now. ``enforced``: some authentication is on."""
        self.enforced = enforced
        self.audit = audit
        self.file = settings.rules_file
        """Rules of this node's own; None: it has none."""
        self._rules = rules
        self._file_rules = NO_RULES
        self._stamp: Stamp = None
        """Of the file when it was read."""
        self._kept: OrderedDict[tuple[str, str], Permissions] = OrderedDict()
        """A user who comes again, or by several connections, is not judged again."""
        self._supers = frozenset(settings.super_users)
        self._of = NO_RULES
        self._authorizer = Authorizer((NO_RULES, NO_RULES), self._supers)
        """By ``_of`` and ``_file_rules``."""
        self._named: tuple[Authorizer | None, frozenset[str]] = (None, frozenset())
        """Whom the rules name, and by which rules."""
        self._findings = DecisionCache(lambda: self.authorizer)

    @property
    def authorizer(self) -> Authorizer:
        """The same object for as long as no rule changes."""
        rules = self._rules()
        if rules is not self._of:
            self._of = rules
            self._authorizer = Authorizer((rules, self._file_rules), self._supers)
        return self._authorizer

    @property
    def file_rules(self) -> RuleBook:
        """Those of the file, as last read."""
        return self._file_rules

    def names(self, principal: str) -> bool:
        """Whether some rule is about it by its name, or it is a super user."""
        authorizer = self.authorizer
        if self._named[0] is not authorizer:
            named = {rule.principal for book in authorizer.books for rule in book}
            self._named = authorizer, frozenset(named) | self._supers
        return principal in self._named[1]

    def access_of(self, session: Session) -> Permissions | None:
        """None for a principal that may do everything: nodes, and all where nothing is enforced."""
        if not self.enforced or session.is_node:
            return None
        key = (str(session.principal), session.host)
        found = self._kept.get(key)
        if found is None:
            found = self._kept[key] = Permissions(session, self._findings, self.audit)
            if len(self._kept) > KEPT_MAX:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return found

    def load(self) -> None:
        """Before anybody is answered. Raises ConfigError."""
        if self.file is not None:
            self._stamp = _stamp(self.file)
            self._take(read_rules(self.file))

    async def run(self) -> None:
        """Read the file again when it changes; a wrong one changes nothing."""
        while self.file is not None:
            await asyncio.sleep(CHECK_S)
            stamp = await _stamp_later(self.file)
            if stamp == self._stamp:
                continue
            self._stamp = stamp
            try:
                rules = await reread_rules(self.file)
            except ConfigError as error:
                logger.error(RULES_NOT_READ_AGAIN, extra={
                    "problem": error.problem, "remedy": error.remedy,
                })  # fmt: skip
                continue
            self._take(rules)
            extra = {"file": str(self.file), "rules": len(rules)}
            logger.info("access rules read again", extra=extra)

    def _take(self, rules: RuleBook) -> None:
        self._file_rules = rules
        self._authorizer = Authorizer((self._of, rules), self._supers)


def _stamp(path: Path) -> Stamp:
    try:
        return _identity(path.stat())
    except OSError:
        return None


async def _stamp_later(path: Path) -> Stamp:
    """``_stamp`` on an event loop: a network file system may take its time."""
    try:
        return _identity(await aiofiles.os.stat(path))
    except OSError:
        return None


def _identity(found: os.stat_result) -> tuple[int, int, int]:
    return found.st_ino, found.st_mtime_ns, found.st_size
