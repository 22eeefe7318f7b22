"""What the running node says of itself: the reasons of ``/readyz``, as on its page."""

import json
from typing import TYPE_CHECKING

from streamlog.cli.node.node_http import NodeHttpClient
from streamlog.condition import NOTE
from streamlog.errors import ConfigError, NodeUnreachable
from streamlog.findings import NODE, Finding, readiness_findings
from streamlog.metadata.nodes.node_condition import NODE_GONE

if TYPE_CHECKING:
    from streamlog.config import Settings


def examine(settings: "Settings", timeout_s: float) -> list[Finding]:
    """Of the node that these settings belong to."""
    who = f"Node {settings.node.id}"
    try:
        http = NodeHttpClient(settings)
        answer = http.get("/readyz", timeout_s)
    except ConfigError as error:
        return [Finding(NODE, "skipped", f"{error.key}: {error.problem}", error.remedy)]
    except NodeUnreachable as error:
        if error.is_timeout:
            said = f"{who} does not answer, though something listens there: {error}"
            remedy = (
                "see whether the process hangs or is stopped (its log, `ps`, the machine's load)"
            )
            return [Finding.of(NODE_GONE, NODE, said, remedy)]
        remedy = "start it, if it is not meant to be down"
        said = f"{who} is not asked whether it is ready: {error}"
        return [Finding.of(NODE_GONE, NODE, said, remedy, severity=NOTE)]
    return judged(who, answer.text)


def judged(who: str, text: str) -> list[Finding]:
    """Of the body of ``/readyz``."""
    try:
        answer = json.loads(text)
        reasons: dict[str, str] = dict(answer["reasons"])
        ready = bool(answer["ready"])
    except (ValueError, KeyError, TypeError, RecursionError):
        said = f"{who} does not say whether it is ready: {' '.join(text.split())[:100]!r}"
        return [Finding(NODE, "skipped", said, "see that http.port leads to a node of streamlog")]
    if ready:
        return [Finding(NODE, "ok", f"{who} says that it is ready")]
    return list(readiness_findings(who, reasons))
