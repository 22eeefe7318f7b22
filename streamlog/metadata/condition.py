"""What keeps a node that runs from its work: judged here, from facts, and nowhere else. Pure.

``/readyz``, the status page, ``doctor``, ``cluster check``, the metrics and the controller's choice
of leaders all ask this module, so that they cannot contradict each other.
"""

from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Final, NamedTuple

from streamlog.tls.certificate import SOON, URGENT

DISK: Final = "disk"
CERTIFICATE: Final = "certificate"
CLOCK: Final = "clock"

DISABLING: Final[Mapping[str, str]] = {
    DISK: "its disk is full: it stores nothing",
    CERTIFICATE: "its certificate has expired: clients and other nodes refuse it",
    CLOCK: "its clock is wrong: retention, duplicate windows and lookups by time go by it",
}
"""What a node cannot lead with, by the name under which it is told, in words about "it"."""

REMEDIES: Final[Mapping[str, str]] = {
    DISK: "make room: shorten a stream's retention, delete streams, or enlarge the disk; the node"
    " goes on by itself",
    CERTIFICATE: "put a renewed one in the place of its file: the node reads it by itself;"
    " `streamlog doctor` there names the file",
    CLOCK: "see `chronyc tracking` or `timedatectl` there, and have the clock set",
}

CLOCK_OFF_S: Final = 1.0
"""A clock that differs by more than this from that of most nodes is told of ..."""
CLOCK_WRONG_S: Final = 60.0
"""... and by more than this the node does not lead: half of the default duplicate window."""


class Facts(NamedTuple):
    """About one node, as it knows them itself."""

    disk_full: bool = False
    certificate_left: timedelta | None = None
    """Of the certificate at the socket API's door, until it expires; None: the door has none."""
    clock_ahead_s: float | None = None
    """Of the time that most nodes agree on, or else of the controller's clock."""
    clock_agreed: bool = False
    """Most nodes agree on the time, so that it is this one whose clock is wrong."""


class Trouble(NamedTuple):
    """One thing that is wrong with a node."""

    name: str
    said: str
    """About "it", the node."""
    remedy: str
    is_disabling: bool
    """The node is not ready, and others lead in its place where they can."""


def judge(facts: Facts) -> list[Trouble]:
    """Empty where all is well."""
    found = []
    if facts.disk_full:
        found.append(_disabling(DISK))
    left = facts.certificate_left
    if left is not None and left <= timedelta(0):
        found.append(_disabling(CERTIFICATE))
    elif left is not None and left < SOON:
        urgency = "today" if left < URGENT else "soon"
        said = f"its certificate expires in {left.days} days: renew it {urgency}"
        found.append(Trouble(CERTIFICATE, said, REMEDIES[CERTIFICATE], is_disabling=False))
    ahead_s = facts.clock_ahead_s or 0.0
    if abs(ahead_s) > CLOCK_OFF_S:
        found.append(_of_clock(ahead_s, agreed=facts.clock_agreed))
    return found


def disabling(troubles: Collection[Trouble]) -> tuple[str, ...]:
    """The names of those that the node cannot lead with, in a steady order."""
    return tuple(sorted({it.name for it in troubles if it.is_disabling}))


def agreed_ahead_s(ahead_s: Collection[float], nodes: int) -> float | None:
    """By how much the time that most nodes agree on is ahead of the controller's clock.

    ``ahead_s``: what nodes have told of their own clocks, the controller's among them; ``nodes``:
    how many there are. None where no majority agrees: then nobody can say whose clock is wrong.
    """
    if not ahead_s:
        return None
    middle = sorted(ahead_s)[(len(ahead_s) - 1) // 2]
    near = sum(abs(it - middle) <= CLOCK_WRONG_S / 2 for it in ahead_s)
    return middle if 2 * near > nodes else None


def _disabling(name: str, said: str = "") -> Trouble:
    return Trouble(name, said or DISABLING[name], REMEDIES[name], is_disabling=True)


def _of_clock(ahead_s: float, *, agreed: bool) -> Trouble:
    side = "ahead of" if ahead_s > 0 else "behind"
    others = "that of most nodes" if agreed else "the controller's"
    said = f"its clock is {abs(ahead_s):.1f} s {side} {others}"
    if agreed and abs(ahead_s) > CLOCK_WRONG_S:
        return _disabling(CLOCK, said)
    return Trouble(CLOCK, said, REMEDIES[CLOCK], is_disabling=False)
