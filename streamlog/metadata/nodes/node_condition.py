"""What keeps a node that runs from its work: judged here, from facts, and nowhere else. Pure.

``/readyz``, the console, ``doctor``, ``cluster check``, the metrics and the controller's choice
of leaders all ask this module, so that they cannot contradict each other.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Final, NamedTuple

from streamlog.condition import CRITICAL, RECORDS_DAMAGED, Condition
from streamlog.tls.certificate import CERTIFICATE_ENDS, SOON, URGENT

DISK: Final = "disk"
CERTIFICATE: Final = "certificate"
CLOCK: Final = "clock"
HTTP_CERTIFICATE: Final = "http_certificate"
NATS: Final = "nats"
SLOW_NATS: Final = "slow_nats"
LOST: Final = "lost_records"
DAMAGED: Final = "damaged_records"

DISABLING: Final[Mapping[str, str]] = {
    DISK: "its disk is full: it stores nothing",
    CERTIFICATE: "its certificate has expired: clients and other nodes refuse it",
    CLOCK: "its clock is wrong: retention, duplicate windows and lookups by time go by it",
}
"""What a node cannot lead with, by the name under which it is told, in words about "it"."""

ENDURABLE: Final[Mapping[str, str]] = {
    HTTP_CERTIFICATE: "the certificate of its HTTP has expired: browsers and Prometheus refuse it",
    NATS: "it is not connected to NATS, or not permitted what it needs there: what it leads takes"
    " nothing in from there",
    SLOW_NATS: "NATS answers it late: its publishers and the management API wait as long",
    LOST: "it has lost records that were acknowledged, and no other replica has them",
    DAMAGED: "it has records that cannot be read, and no other replica in sync has them",
}
"""What a node is not well with and leads on; told in the same way."""

CLOCK_OFF: Final = Condition(
    "SL-0105",
    "clock is off",
    "see `chronyc tracking` or `timedatectl` there, and have the clock set",
    meaning="The clock differs from that of most nodes, or of the controller. Retention, duplicate "
    "windows and lookups by time go by it. Beyond a minute the node does not lead.",
)
NODE_UNFIT: Final = Condition(
    "SL-0106",
    "node cannot lead",
    "its /readyz says what is wrong and what to do; so does its page",
    meaning="The node runs, and something keeps it from leading: its disk, its certificate or its "
    "clock. Other nodes lead in its place where they can.",
    severity=CRITICAL,
)
NODE_GONE: Final = Condition(
    "SL-0101",
    "node is gone",
    "start it, or see why it is not reached: its log says why it stopped",
    meaning="A node does not answer, or has not reported to the controller within "
    "cluster.session_timeout_ms. Other nodes lead in its place.",
    severity=CRITICAL,
    runbook="runbooks/replace-a-node.md",
)
LEASE_LOST: Final = Condition(
    "SL-0103",
    "no word from the controller",
    "see whether this node reaches the controller: `streamlog doctor` measures the way",
    meaning="The node has not heard from the controller within its lease. It acknowledges nothing; "
    "committed records are read.",
    severity=CRITICAL,
)
METADATA_FAILED: Final = Condition(
    "SL-0120",
    "metadata log failed",
    "repair the disk and restart the node; the others go on without it",
    meaning="The disk failed under the metadata log. The node takes no part in the quorum until it "
    "is restarted.",
    severity=CRITICAL,
    runbook="runbooks/damaged-disk.md",
)
PARTITION_OFFLINE: Final = Condition(
    "SL-0204",
    "partition offline",
    "its page and its log name the error: repair the disk, or give it the key that it lacks; then "
    "restart the node",
    meaning="The node cannot open or write its replica of a partition. Other replicas, if any, "
    "lead in its place.",
    severity=CRITICAL,
    runbook="runbooks/damaged-disk.md",
)
DISK_FULL: Final = Condition(
    "SL-0301",
    "disk full",
    "make room: shorten a stream's retention, delete streams, or enlarge the disk; the node goes on"
    " by itself",
    meaning="The disk of the data folder has no room, or less than log.metadata_reserve_bytes. The "
    "node stores nothing; other nodes lead where they can.",
    severity=CRITICAL,
    runbook="runbooks/full-disk.md",
)
RECORDS_LOST: Final = Condition(
    "SL-0303",
    "acknowledged records are lost",
    "its page and its log name them: restore them from a backup, or have them published again, and"
    " look at its disk; it is told until the file that they name is removed",
    meaning="A log lost its end, and no other replica has these records. The node leads on.",
    severity=CRITICAL,
    runbook="runbooks/restore-a-stream.md",
)
NATS_GONE: Final = Condition(
    "SL-0401",
    "not connected to NATS",
    "see its `/readyz`, or its log: they name the reason and what to do",
    meaning="The node is not connected to nats-server, or nats-server refuses its login. What it "
    "leads takes nothing in from NATS; Kafka clients write and read.",
    severity=CRITICAL,
)
NATS_SLOW: Final = Condition(
    "SL-0403",
    "NATS is slow",
    "see the network between it and nats-server, and whether that one's machine lacks processor"
    " time; restart neither before: a new connection may not come about",
    meaning="nats-server answers the node late. Each acknowledgement takes as long.",
    severity=CRITICAL,
)

CONDITIONS: Final[Mapping[str, Condition]] = {
    DISK: DISK_FULL,
    CERTIFICATE: CERTIFICATE_ENDS,
    CLOCK: CLOCK_OFF,
    HTTP_CERTIFICATE: CERTIFICATE_ENDS,
    NATS: NATS_GONE,
    SLOW_NATS: NATS_SLOW,
    LOST: RECORDS_LOST,
    DAMAGED: RECORDS_DAMAGED,
}
"""By the name under which a node tells it."""

CLOCK_OFF_S: Final = 1.0
"""A clock that differs by more than this from that of most nodes is told of ..."""
CLOCK_WRONG_S: Final = 60.0
"""... and by more than this the node does not lead: half of the default duplicate window."""


NATS_SLOW_S: Final = 1.0
"""An answer of NATS that takes longer than this is told of."""


class Facts(NamedTuple):
    """About one node, as it knows them itself."""

    disk_full: bool = False
    certificate_left: timedelta | None = None
    """Time until the certificate of the socket API's listener expires; None: it has none."""
    http_certificate_left: timedelta | None = None
    """The same of HTTP's, where it has one of its own."""
    clock_ahead_s: float | None = None
    """Of the time that most nodes agree on, or else of the controller's clock."""
    nats_answers_s: float = 0.0
    """After so long."""
    gone: Sequence[str] = ()
    """Each partition that has lost records for good, with which, and the file that says so."""
    clock_agreed: bool = False
    """Most nodes agree on the time, so that it is this one whose clock is wrong."""


class Trouble(NamedTuple):
    """One thing that is wrong with a node."""

    name: str
    said: str
    """About "it", the node."""
    is_disabling: bool
    """The node is not ready, and others lead in its place where they can."""
    is_urgent: bool = False
    """It does harm already, or will within days; what is disabling does."""
    is_to_come: bool = False
    """It will, and others need not be told yet."""

    @property
    def condition(self) -> Condition:
        return CONDITIONS[self.name]

    @property
    def event(self) -> Condition:
        """What the log calls it."""
        if self.is_disabling:
            return self.condition.logged_as("this node cannot lead")
        said = "this node is not well" if self.is_urgent else "this node needs care"
        return self.condition.logged_as(said)


def judge(facts: Facts) -> list[Trouble]:
    """Empty where all is well."""
    found = []
    if facts.disk_full:
        found.append(_disabling(DISK))
    left, http_left = facts.certificate_left, facts.http_certificate_left
    if left is not None and left <= timedelta(0):
        found.append(_disabling(CERTIFICATE))
    elif left is not None and left < SOON:
        found.append(_ending(CERTIFICATE, "its certificate", left))
    if http_left is not None and http_left <= timedelta(0):
        found.append(_endurable(HTTP_CERTIFICATE, ENDURABLE[HTTP_CERTIFICATE], is_urgent=True))
    elif http_left is not None and http_left < SOON:
        found.append(_ending(HTTP_CERTIFICATE, "the certificate of its HTTP", http_left))
    if facts.nats_answers_s > NATS_SLOW_S:
        said = f"NATS answers it after {facts.nats_answers_s:.1f} s: publishers wait as long"
        found.append(_endurable(SLOW_NATS, said, is_urgent=True))
    if facts.gone:
        found.append(_of_gone(facts.gone))
    ahead_s = facts.clock_ahead_s or 0.0
    if abs(ahead_s) > CLOCK_OFF_S:
        found.append(_of_clock(ahead_s, agreed=facts.clock_agreed))
    return found


def disabling(troubles: Collection[Trouble]) -> tuple[str, ...]:
    """The names of those that the node cannot lead with, in a steady order."""
    return tuple(sorted({it.name for it in troubles if it.is_disabling}))


def endured(troubles: Collection[Trouble]) -> tuple[str, ...]:
    """The names of what has come about already and is endured, in a steady order."""
    return tuple(sorted({it.name for it in troubles if it.name in ENDURABLE and not it.is_to_come}))


def keep_from_leading(names: Collection[str]) -> bool:
    """Whether a node cannot lead with what it tells; a name of a later version counts."""
    return any(name not in ENDURABLE for name in names)


def keep_from_deciding(names: Collection[str]) -> bool:
    """Whether a node cannot be the controller: others could not send it requests any more, but for
    connections that they have opened before.
    """
    return CERTIFICATE in names


def told(name: str) -> str:
    """A name that a node tells, in words about "it"."""
    if name in ENDURABLE:
        return ENDURABLE[name]
    return DISABLING.get(name, name)


def agreed_ahead_s(ahead_s: Collection[float], nodes: int) -> float | None:
    """By how much the time that most nodes agree on is ahead of the controller's clock.

    ``ahead_s``: what nodes have told of their own clocks, the controller's among them; ``nodes``:
    how many there are. None where no majority agrees: then it is not known whose clock is wrong.
    """
    if not ahead_s:
        return None
    middle = sorted(ahead_s)[(len(ahead_s) - 1) // 2]
    near = sum(abs(it - middle) <= CLOCK_WRONG_S / 2 for it in ahead_s)
    return middle if 2 * near > nodes else None


def _disabling(name: str, said: str = "") -> Trouble:
    said = said or DISABLING[name]
    return Trouble(name, said, is_disabling=True, is_urgent=True)


def _endurable(name: str, said: str, *, is_urgent: bool, is_to_come: bool = False) -> Trouble:
    return Trouble(name, said, is_disabling=False, is_urgent=is_urgent, is_to_come=is_to_come)


def _of_gone(gone: Sequence[str]) -> Trouble:
    partitions = "1 partition has" if len(gone) == 1 else f"{len(gone)} partitions have"
    said = (
        f"{partitions} lost records that were acknowledged, and no other replica has them,"
        f" such as {gone[0]}"
    )
    return _endurable(LOST, said, is_urgent=True)


def _ending(name: str, what: str, left: timedelta) -> Trouble:
    is_urgent = left < URGENT
    when = f"{left.days} days" if left.days > 1 else f"{left // timedelta(hours=1)} hours"
    said = f"{what} expires in {when}: renew it {'today' if is_urgent else 'soon'}"
    return _endurable(name, said, is_urgent=is_urgent, is_to_come=True)


def _of_clock(ahead_s: float, *, agreed: bool) -> Trouble:
    side = "ahead of" if ahead_s > 0 else "behind"
    others = "that of most nodes" if agreed else "the controller's"
    said = f"its clock is {abs(ahead_s):.1f} s {side} {others}"
    if agreed and abs(ahead_s) > CLOCK_WRONG_S:
        return _disabling(CLOCK, said)
    return _endurable(CLOCK, said, is_urgent=False)
