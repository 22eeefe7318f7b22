"""What the running node says of itself: the reasons of ``/readyz``, as on its page."""

import json
from typing import TYPE_CHECKING, Final

from streamlog.cli.doctor.finding import DoctorFinding
from streamlog.cli.node.node_http import NodeHttpClient
from streamlog.errors import ConfigError, NodeUnreachable

if TYPE_CHECKING:
    from streamlog.config import Settings

AREA: Final = "node"
PASSING: Final = frozenset({"node", "ingest", "replicas"})
"""Parts of which a node tells while it starts; they pass by themselves."""


def examine(settings: "Settings", timeout_s: float) -> list[DoctorFinding]:
    """Of the node that these settings belong to."""
    who = f"node {settings.node.id}"
    try:
        http = NodeHttpClient(settings)
        answer = http.get("/readyz", timeout_s)
    except ConfigError as error:
        return [DoctorFinding(AREA, "skipped", f"{error.key}: {error.problem}", error.remedy)]
    except NodeUnreachable as error:
        if error.is_timeout:
            said = f"{who} does not answer, though something listens there: {error}"
            remedy = (
                "see whether the process hangs or is stopped (its log, `ps`, the machine's load)"
            )
            return [DoctorFinding(AREA, "failed", said, remedy)]
        remedy = "start it, if it is not meant to be down"
        return [
            DoctorFinding(AREA, "note", f"{who} is not asked whether it is ready: {error}", remedy)
        ]
    return judged(who, answer.text)


def judged(who: str, text: str) -> list[DoctorFinding]:
    """Of the body of ``/readyz``."""
    try:
        answer = json.loads(text)
        reasons: dict[str, str] = dict(answer["reasons"])
        ready = bool(answer["ready"])
    except (ValueError, KeyError, TypeError, RecursionError):
        said = f"{who} does not say whether it is ready: {' '.join(text.split())[:100]!r}"
        return [
            DoctorFinding(AREA, "skipped", said, "see that http.port leads to a node of streamlog")
        ]
    if ready:
        return [DoctorFinding(AREA, "ok", f"{who} says that it is ready")]
    return [
        DoctorFinding(
            AREA,
            "warning" if part in PASSING else "failed",
            f"{who} is not ready: {part}: {reason}",
            "see its page and its log",
        )
        for part, reason in reasons.items()
    ]
