"""Histories of operations on a cluster, as its clients saw them: one JSON object a line.

``porcupine/history.go`` reads them. ``docs/reliability.md`` describes the fields.
"""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

UNKNOWN: Final = None
"""The outcome of an operation whose client was told nothing: it may have taken effect, or may yet do so."""


class Call:
    """An operation that has begun. ``output`` is set before its end if its client was told something."""

    def __init__(self) -> None:
        self.output: dict[str, Any] | None = UNKNOWN
        self.call_ns = time.monotonic_ns()
        self.is_void = False
        """It says nothing, such as a read that failed: it is left out."""

    def tells(self, **output: Any) -> None:
        self.output = {name: value for name, value in output.items() if value is not None}

    def began(self, call_ns: int) -> None:
        """Earlier than it was noted."""
        self.call_ns = call_ns

    def says_nothing(self) -> None:
        self.is_void = True


class History:
    """``with History(path) as history``: clients of any thread add their operations to the file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.count = 0
        self.unknown = 0
        self._lock = threading.Lock()
        self._clients = 0

    def __enter__(self) -> Self:
        self._file = self.path.open("w")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._lock:
            self._file.close()

    def client(self) -> int:
        """A number for another client, which does one operation at a time."""
        with self._lock:
            self._clients += 1
            return self._clients - 1

    @contextmanager
    def operation(
        self, client: int, model: str, key: str, kind: str, **given: Any
    ) -> Iterator[Call]:
        """From its call to its return. What it raises is raised, and its outcome is unknown then."""
        call = Call()
        try:
            yield call
        finally:
            is_known = call.output is not UNKNOWN
            line = {
                "client": client,
                "call_ns": call.call_ns,
                "return_ns": time.monotonic_ns() if is_known else None,
                "model": model,
                "key": key,
                "kind": kind,
                "input": given,
                "output": call.output,
            }
            if not call.is_void:
                self._write(line, is_known)

    def _write(self, line: dict[str, Any], is_known: bool) -> None:
        text = json.dumps(line) + "\n"
        with self._lock:
            if not self._file.closed:
                self._file.write(text)
                self.count += 1
                self.unknown += not is_known
