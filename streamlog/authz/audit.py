"""The audit log: administrative acts and refusals, one line each, by logger ``streamlog.audit``.

Lines are told to the log of the node and, where a file is named, to that file as JSON. An act that
was done, in part, or may have been, is always told. What was refused is told up to a limit: the
same refusal once in ``REPEAT_S``, and so many refusals and failed attempts a second; the next line
of the kind says how many were not told. So no client can hide an act behind requests that he has no
right to. No line has a secret in it: requests are named by their API and by the resources they are
about, never by their content. Names are shortened before they are remembered or told, since a client that
is refused may send names of any length.
"""

import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from streamlog.acl.rules import Operation, ResourceType
from streamlog.authn.session import Session

logger = logging.getLogger("streamlog.audit")

LINES_PER_S: Final = 50
REPEAT_S: Final = 10.0
REPEATED_MAX: Final = 10_000
"""Refusals known to have been told; beyond it the one told longest ago may be told again."""
RESOURCES_MAX: Final = 20
"""In the line of an attempt; the number of the others is told."""
ACT_RESOURCES_MAX: Final = 1_000
"""In a line of an act; the others are in further lines."""
NAME_CHARS_MAX: Final = 250
"""A longer name is shortened; names of streams are not that long."""
ACT_NAME_CHARS_MAX: Final = 2_000
"""The same in the line of an act: a rule with the longest principal, or a stream with the keys of
all its settings, is named in full. Else it could be hidden what was done."""

ACT: Final = "act"
"""The event of an act that was done, or may have been. No limit holds for it, here or in the log of
the node."""
ATTEMPT: Final = "attempt"
"""The event of one that was not done."""


class AuditedRefusal(NamedTuple):
    """Who was not allowed to do what."""

    principal: str
    host: str
    operation: Operation
    kind: ResourceType
    name: str


class Audit:
    """Never raises, never waits."""

    def __init__(
        self,
        lines_per_s: float = LINES_PER_S,
        now_s: Callable[[], float] = time.monotonic,
        *,
        count: Callable[[str], None] = lambda _: None,
    ) -> None:
        """``count`` hears of each login that is refused, told or not, and by which way it came."""
        self._now_s = now_s
        self._count = count
        self._refusals = _Pace(lines_per_s, now_s())
        self._attempts = _Pace(lines_per_s, now_s())
        self._told: OrderedDict[tuple[object, ...], _Repeats] = OrderedDict()

    def refused(self, refusal: AuditedRefusal) -> None:
        """Authorization: a known principal may not."""
        refusal = refusal._replace(
            principal=shortened(refusal.principal), name=shortened(refusal.name)
        )
        self._tell_once(
            refusal,
            "refused",
            {
                "principal": refusal.principal,
                "host": refusal.host,
                "operation": str(refusal.operation),
                "resource_type": str(refusal.kind),
                "resource": refusal.name,
            },
        )

    def not_authenticated(self, session: Session, reason: str, *, by: str) -> None:
        """A client could not prove who it is. ``reason``: without a secret; ``by``: the protocol
        they came by.
        """
        self._count(by)
        told = {"host": session.host, "reason": reason, "by": by}
        fields = {key: shortened(str(value)) for key, value in told.items()}
        self._tell_once(("login", *sorted(map(str, fields.items()))), "login refused", fields)

    def acted(
        self,
        session: Session,
        act: str,
        resources: Iterable[str] = (),
        outcome: Mapping[str, int] | str = "none",
        *,
        is_done: bool = True,
        **more: object,
    ) -> None:
        """An administrative act was asked for. ``outcome``: errors by name, and how often each.
        ``is_done``: all of it, a part of it, or it is not known; False: nothing was changed.
        """
        if not is_done and not self._attempts.admits(self._now_s()):
            return
        chars_max = ACT_NAME_CHARS_MAX if is_done else NAME_CHARS_MAX
        names = [shortened(it, chars_max) for it in resources]
        names_max = ACT_RESOURCES_MAX if is_done else RESOURCES_MAX
        fields: dict[str, Any] = {
            "principal": shortened(str(session.principal)),
            "host": session.host,
            "client_id": shortened(session.client_id),
            "act": act,
            "resources": names[:names_max],
            "outcome": outcome if isinstance(outcome, str) else _counted(outcome),
            **more,
        }
        if not is_done:
            if len(names) > names_max:
                fields["resources_more"] = len(names) - names_max
            self._line(ATTEMPT, fields, self._attempts)
            return
        parts = max(1, -(-len(names) // names_max))
        for part in range(parts):
            if parts > 1:
                some = names[part * names_max : (part + 1) * names_max]
                fields |= {"resources": some, "part": f"{part + 1} of {parts}"}
            self._line(ACT, dict(fields), None)

    def _tell_once(self, key: tuple[object, ...], event: str, fields: dict[str, Any]) -> None:
        now_s = self._now_s()
        known = self._told.get(key)
        if known is not None and now_s < known.until_s:
            known.count += 1
            return
        if not self._refusals.admits(now_s):
            return
        if known is not None and known.count:
            fields["repeated"] = known.count
        self._told[key] = _Repeats(now_s + REPEAT_S)
        self._told.move_to_end(key)
        if len(self._told) > REPEATED_MAX:
            self._told.popitem(last=False)
        self._line(event, fields, self._refusals)

    @staticmethod
    def _line(event: str, fields: dict[str, Any], pace: "_Pace | None") -> None:
        if pace is not None and pace.suppressed:
            fields["suppressed"], pace.suppressed = pace.suppressed, 0
        level = logging.INFO if event in (ACT, ATTEMPT) else logging.WARNING
        logger.log(level, event, extra=fields)


class _Repeats:
    __slots__ = ("count", "until_s")

    def __init__(self, until_s: float) -> None:
        self.until_s = until_s
        self.count = 0
        """Not told since it was told."""


class _Pace:
    """So many lines a second; a second's worth at once."""

    def __init__(self, lines_per_s: float, now_s: float) -> None:
        self._rate = lines_per_s
        self._left = lines_per_s
        self._at_s = now_s
        self.suppressed = 0

    def admits(self, now_s: float) -> bool:
        self._left = min(self._rate, self._left + (now_s - self._at_s) * self._rate)
        self._at_s = now_s
        if self._left < 1:
            self.suppressed += 1
            return False
        self._left -= 1
        return True


def shortened(name: str, chars_max: int = NAME_CHARS_MAX) -> str:
    return name if len(name) <= chars_max else name[: chars_max - 1] + "…"


def _counted(outcome: Mapping[str, int]) -> str:
    """As in ``none 3, topic_already_exists 1``; nothing at all went well."""
    told = Counter(outcome)
    return ", ".join(f"{name} {count}" for name, count in told.most_common()) or "none"
