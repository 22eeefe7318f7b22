"""The JSON API of a node, asked by curl."""

import json
import subprocess
from typing import Any, NamedTuple

from tools.nodes.node_process import NodeProcess

BASE = "/api/v1"


class Answer(NamedTuple):
    status: int
    content: Any
    """What the JSON holds; None: nothing came."""

    @property
    def code(self) -> str:
        return str(self.content["error"]["code"])

    @property
    def message(self) -> str:
        return str(self.content["error"]["message"])


def ask(
    node: NodeProcess,
    method: str,
    path: str,
    content: object = None,
    *,
    login: str = "",
    headers: tuple[str, ...] = (),
    body: str | None = None,
) -> Answer:
    """``content`` as JSON; ``body``: these characters instead; ``login``: a user and a password, with a colon."""
    command = ["curl", "-s", "-S", "-m", "20", "-X", method, "-w", "\n%{http_code}"]
    if content is not None or body is not None:
        command += ["-H", "Content-Type: application/json"]
        command += ["-d", json.dumps(content) if body is None else body]
    if login:
        command += ["-u", login]
    for header in headers:
        command += ["-H", header]
    command.append(f"http://127.0.0.1:{node.http_port}{BASE}{path}")
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    text, _, status = done.stdout.rpartition("\n")
    return Answer(int(status), json.loads(text) if text else None)
