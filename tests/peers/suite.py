"""A peer's tests in a process of their own, with our servers in place of the peer's."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.peers.expectations import FAILED, Expectations, Place
from tests.peers.sources import Peer, Sources

RUN_TIMEOUT_S: Final = 2_400.0
OUTPUT_TAIL: Final = 10_000
INSIDE: Final = Path(__file__).with_name("inside")
"""Modules for that process: peers have a package ``tests``, too, so it cannot see ours."""

SETTINGS: Final = """[pytest]
asyncio_mode = auto
markers = ssl: of aiokafka
"""
KAFKA_VERSION: Final = "4.0"
"""What kafka-python's tests are told: they leave out what that version has not."""


class Suite:
    """``collect`` it, then ``run`` it at each place."""

    def __init__(
        self,
        peer: Peer,
        sources: Sources,
        expected: Expectations,
        folder: Path,
        *,
        fixtures: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """``folder`` is made, for a copy of the tests: some of them write beside themselves.
        ``fixtures``: a module inside, by default the one that is called as the peer is.
        ``environment``: more of it.
        """
        self.expected = expected
        self.collected: list[str] = []
        self.outcomes: dict[str, str] = {}
        self.details: dict[str, str] = {}
        """What was told of failures."""
        own = fixtures or f"{peer.package.replace('-', '_')}_fixtures"
        self._plugins = ["chosen_tests", own]
        self._environment = {**os.environ, **(environment or {})}
        self._conftest = [] if peer.keeps_conftest else ["--noconftest"]
        self._folder = folder / peer.root
        shutil.copytree(sources.folder, folder)
        (self._folder / "pytest.ini").write_text(SETTINGS)

    def replace(self, texts: Mapping[str, str]) -> None:
        """In the copy of the tests."""
        for path in self._folder.rglob("*.py"):
            content = path.read_text()
            for old, new in texts.items():
                content = content.replace(old, new)
            path.write_text(content)

    def collect(self) -> None:
        self.collected = self._pytest("--collect-only")["collected"]

    def run(self, place: Place, servers: Sequence[str]) -> None:
        """All that belong there; what fails once more, since peers count on some haste."""
        mine = [test for test in self.collected if self.expected.place(test) == place]
        self._run(mine, servers)
        again = [
            test
            for test in mine
            if self.outcomes.get(test) == FAILED and not self.expected.is_failing(test)
        ]
        self._run(again, servers)

    def _run(self, tests: Sequence[str], servers: Sequence[str]) -> None:
        if tests:
            told = self._pytest(tests=tests, servers=servers)
            self.outcomes |= told["outcomes"]
            self.details |= told["details"]

    def _pytest(
        self, *options: str, tests: Sequence[str] | None = None, servers: Sequence[str] = ()
    ) -> dict[str, Any]:
        """What ``inside/chosen_tests.py`` tells."""
        order, told = self._folder / "order.json", self._folder / "told.json"
        told.unlink(missing_ok=True)
        content = {"servers": list(servers), "tests": tests, "told": str(told)}
        order.write_text(json.dumps(content))
        command = [sys.executable, "-m", "pytest", "-q", "--tb=short", *self._conftest]
        for plugin in (*self._plugins, "no:cacheprovider"):
            command += ["-p", plugin]
        done = subprocess.run(
            [*command, "-c", "pytest.ini", "--rootdir", ".", *options, *self.expected.files],
            cwd=self._folder,
            env={
                **self._environment,
                "PYTHONPATH": str(INSIDE),
                "PEER_TESTS_ORDER": str(order),
                "KAFKA_VERSION": KAFKA_VERSION,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
            timeout=RUN_TIMEOUT_S,
        )
        if not told.exists():
            raise AssertionError(f"the tests did not come to an end:\n{done.stdout[-OUTPUT_TAIL:]}")
        result: dict[str, Any] = json.loads(told.read_text())
        return result
