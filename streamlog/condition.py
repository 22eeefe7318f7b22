"""What may be wrong with a node or a cluster, and what to do about it. Pure.

A condition has a code, such as ``SL-0101``. The module that reports a condition declares it as a
constant beside the code that reports it, or imports it from the lowest module that does. A log
line, a finding of the console, of ``cluster check`` and of ``doctor``, and an alert carry the
code; ``docs/troubleshooting.md`` and ``streamlog explain`` list all of them.

A condition is logged as the message itself, ``logger.error(DISK_FULL, extra=...)``: the formatter
adds code and remedy. A code keeps its meaning forever, and is not given again
(``tests/kept/codes.txt``). The first two digits say what it is about: ``AREAS``.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, Literal, Self

Severity = Literal["critical", "warning", "note", "skipped", "ok"]

CRITICAL: Final = "critical"
WARNING: Final = "warning"
NOTE: Final = "note"
SKIPPED: Final = "skipped"
"""It could not be looked at."""
OK: Final = "ok"
SEVERITIES: Final = (CRITICAL, WARNING, NOTE, SKIPPED, OK)
"""The worst first."""

AREAS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "00": "The process",
        "01": "Nodes and metadata",
        "02": "Partitions and replicas",
        "03": "Disks and logs",
        "04": "NATS and publishing",
        "05": "The management API, groups, activity",
        "06": "Security and connections",
        "07": "The ledger",
        "08": "Settings and machines",
        "09": "Seen by Prometheus alone",
    }
)
"""By the first two digits of a code."""

NO_ACTION: Final = ""
"""The remedy where the node does what is to be done."""
REPAIR_DISK: Final = (
    "look at the disk (dmesg, smartctl); repair or replace it, then restart the node"
)
CORRECT_THEN_RESTART: Final = "correct what the error names; if it stays, restart the node"
ANOTHER_REPLICA: Final = (
    "another replica in sync repairs it by itself; without one restore from a backup, and look at "
    "the disk"
)
CHECK_NODES: Final = "see whether the nodes run and reach each other: streamlog doctor"
MAKE_ROOM: Final = "shorten retention, delete streams, or enlarge the disk"

_PLACEHOLDER: Final = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Condition:
    """One thing that may be wrong. ``str`` of it is what the log calls it."""

    code: str
    title: str
    remedy: str
    """One line without a capital; ``{node}`` stands for a fact that the report knows."""
    meaning: str = ""
    """What it is, and what follows from it, in sentences."""
    severity: Severity = WARNING
    """Where a report does not know better."""
    runbook: str = ""
    """The page of docs/ with the whole procedure."""

    def __str__(self) -> str:
        return self.title

    def logged_as(self, event: str) -> Self:
        """The same condition in other words, for a line of the log."""
        return replace(self, title=event)

    def remedy_for(self, facts: Mapping[str, object]) -> str:
        """The remedy with ``facts`` in it; what is not known stays as a name in capitals."""

        def filled(match: re.Match[str]) -> str:
            return str(facts.get(match[1], match[1].upper()))

        return _PLACEHOLDER.sub(filled, self.remedy)


FAULT: Final = Condition(
    "SL-0001",
    "a fault of streamlog",
    "this is a fault of streamlog: report it with this line and its traceback",
    meaning="Code failed in a way that was not foreseen. The log line says what it was doing, and "
    "has the traceback. The node goes on, unless the line says that it failed.",
    severity=CRITICAL,
)
RECORDS_DAMAGED: Final = Condition(
    "SL-0304",
    "records are damaged",
    "another replica in sync repairs it by itself; without one restore it from a backup, and look "
    "at the disk; its page names a partition, its log the file",
    meaning="The checksum or the length of a stored batch is wrong. The batch is never served: "
    "consumers get CORRUPT_MESSAGE for it until it has been fetched again.",
    severity=CRITICAL,
    runbook="runbooks/damaged-disk.md",
)
