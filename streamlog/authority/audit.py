"""The audit log: administrative acts and refusals, one line each, by logger ``streamlog.audit``.

Lines are told to the log of the node and, where a file is named, to that file as JSON. The same
refusal is told once in ``REPEAT_S``, and all lines so many times a second at most; the next line
that is told says how many were not. Acts and refusals are counted apart, so that a flood of
refusals does not hide an act. No line has a secret in it: requests are named by their API and by
the resources they are about, never by their content.
"""

import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from streamlog.access.rules import Operation, ResourceType
from streamlog.access.session import Session

logger = logging.getLogger("streamlog.audit")

LINES_PER_S: Final = 50
REPEAT_S: Final = 10.0
REPEATED_MAX: Final = 10_000
"""Refusals known to have been told; beyond it the one told longest ago may be told anew."""
RESOURCES_MAX: Final = 20
"""In one line; the number of the others is told."""
NAME_CHARS_MAX: Final = 200


class Refusal(NamedTuple):
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
    ) -> None:
        self._now_s = now_s
        self._refusals = _Pace(lines_per_s, now_s())
        self._acts = _Pace(lines_per_s, now_s())
        self._told: OrderedDict[tuple[object, ...], _Repeats] = OrderedDict()

    def refused(self, refusal: Refusal) -> None:
        """Authorization: somebody who is known may not."""
        self._tell_once(
            refusal,
            "refused",
            {
                "principal": refusal.principal,
                "host": refusal.host,
                "operation": str(refusal.operation),
                "resource_type": str(refusal.kind),
                "resource": _short(refusal.name),
            },
        )

    def not_authenticated(self, session: Session, reason: str, **more: object) -> None:
        """Somebody could not prove who they are. ``reason``: without a secret."""
        fields = {"host": session.host, "reason": reason, **more}
        self._tell_once(("login", *sorted(map(str, fields.items()))), "login refused", fields)

    def acted(
        self,
        session: Session,
        act: str,
        resources: Iterable[str] = (),
        outcome: Mapping[str, int] | str = "none",
        **more: object,
    ) -> None:
        """An administrative act was asked for. ``outcome``: errors by name, and how often each."""
        if not self._acts.admits(self._now_s()):
            return
        names = [_short(it) for it in resources]
        fields: dict[str, Any] = {
            "principal": str(session.principal),
            "host": session.host,
            "client_id": _short(session.client_id),
            "act": act,
            "resources": names[:RESOURCES_MAX],
            "outcome": outcome if isinstance(outcome, str) else _counted(outcome),
            **more,
        }
        if len(names) > RESOURCES_MAX:
            fields["resources_more"] = len(names) - RESOURCES_MAX
        self._line("act", fields, self._acts)

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
    def _line(event: str, fields: dict[str, Any], pace: "_Pace") -> None:
        if pace.suppressed:
            fields["suppressed"], pace.suppressed = pace.suppressed, 0
        level = logging.INFO if event == "act" else logging.WARNING
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


def _short(name: str) -> str:
    return name if len(name) <= NAME_CHARS_MAX else name[: NAME_CHARS_MAX - 1] + "…"


def _counted(outcome: Mapping[str, int]) -> str:
    """As in ``none 3, topic_already_exists 1``; nothing at all went well."""
    told = Counter(outcome)
    return ", ".join(f"{name} {count}" for name, count in told.most_common()) or "none"
