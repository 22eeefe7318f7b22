"""One run of a client program: lines of input, JSON lines of output, and an end in any case."""

import contextlib
import json
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from compatibility.outcome import Failed, NotOffered, one_line
from streamlog.cli.dev.die_with_parent import leashed

ANSWER_TIMEOUT_S: Final = 60.0
"""For one line; starts of virtual machines, elections and rebalances lie in it."""
END_TIMEOUT_S: Final = 60.0

Line = dict[str, Any]


class Record(NamedTuple):
    """As a client printed it."""

    partition: int
    offset: int
    value: str


class Program:
    """``with Program(...) as program``: killed at the end, with all that it has started."""

    def __init__(
        self, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self._command = command
        self._log = log
        self._environment = {**os.environ, **(environment or {})}
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._ahead: list[Line] = []
        """Read already, and not given to anybody yet."""
        self._last: str | None = None
        """Of its output, as far as it was read."""
        self.notes: list[str] = []
        """What the client said of how it does what it was asked for."""

    def __enter__(self) -> Self:
        self._errors_from = self._log.stat().st_size if self._log.exists() else 0
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                leashed(self._command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                bufsize=1,
                env=self._environment,
                start_new_session=True,
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()

    def send(self, line: str) -> None:
        """A line of input; Failed if the client is gone."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line + "\n")
        except OSError:
            raise Failed(self._last_words()) from None

    def end_input(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()

    def line(self, timeout_s: float = ANSWER_TIMEOUT_S) -> Line | None:
        """The next line of output; None at its end. Raises Failed and NotOffered as it says."""
        if self._ahead:
            return self._ahead.pop(0)
        try:
            text = self._lines.get(timeout=timeout_s)
        except queue.Empty:
            raise Failed(self._silence(timeout_s)) from None
        if text is None:
            self._lines.put(None)  # for who asks again
            return None
        line = self._parse(text)
        return self.line(timeout_s) if line is None else line

    def lines(self) -> list[Line]:
        """What has come so far, without waiting."""
        found, self._ahead = self._ahead, []
        while (text := self._arrived()) is not None:
            if (line := self._parse(text)) is not None:
                found.append(line)
        return found

    def _arrived(self) -> str | None:
        """The next line of output if it is there already and is not the end."""
        try:
            text = self._lines.get_nowait()
        except queue.Empty:
            return None
        if text is None:
            self._lines.put(None)
        return text

    def _parse(self, text: str) -> Line | None:
        """None: a note, which is kept."""
        self._last = text
        line: Line = json.loads(text)
        if "not_offered" in line:
            raise NotOffered(str(line["not_offered"]))
        if "error" in line:
            raise Failed(one_line(str(line["error"])))
        if "note" in line:
            self.notes.append(str(line["note"]))
            return None
        return line

    def failure(self) -> str | None:
        """Why it has ended or failed, if it has."""
        try:
            self._ahead += self.lines()
        except Failed as failed:
            return str(failed)
        return None if self._process.poll() is None else self._last_words()

    def records(self, count: int, timeout_s: float = ANSWER_TIMEOUT_S) -> list[Record]:
        """So many records."""
        deadline = time.monotonic() + timeout_s
        found: list[Record] = []
        while len(found) < count:
            try:
                line = self.line(max(0.0, deadline - time.monotonic()))
            except Failed as failure:
                so_far = f"after {len(found)} of {count} records: " if found else ""
                raise Failed(f"{so_far}{failure}") from None
            if line is None:
                raise Failed(f"ended after {len(found)} of {count} records: {self._last_words()}")
            found.append(record_of(line))
        return found

    def ask(self, call: Line) -> Line:
        """One line of input, one of output."""
        self.send(json.dumps(call))
        answer = self.line()
        if answer is None:
            raise Failed(self._last_words())
        return answer

    def finish(self) -> list[Line]:
        """End its input and wait for its end; the rest of its output. Failed if it ends badly."""
        self.end_input()
        rest = list(self._rest())
        try:
            code = self._process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise Failed(f"did not end within {END_TIMEOUT_S:.0f} s") from None
        if code != 0:
            raise Failed(self._last_words())
        return rest

    def _rest(self) -> Iterator[Line]:
        while (line := self.line()) is not None:
            yield line

    def _read(self) -> None:
        assert self._process.stdout is not None
        for text in self._process.stdout:
            self._lines.put(text)
        self._lines.put(None)

    def _silence(self, timeout_s: float) -> str:
        """What is known of it; the rest is in its log."""
        last = "" if self._last is None else f"after {self._last.strip()}"
        return " ".join(f"nothing within {timeout_s:.0f} s {last} {self._said()}".split())

    def _last_words(self) -> str:
        """Its output ends a moment before itself."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(END_TIMEOUT_S)
        return f"ended with {self._process.poll()} {self._said()}".strip()

    def _said(self) -> str:
        """The last line on standard error, if there is one."""
        with self._log.open("rb") as log:
            log.seek(self._errors_from)
            lines = log.read().decode(errors="replace").strip().splitlines()
        return f"({one_line(lines[-1])})" if lines else ""


def record_of(line: Line) -> Record:
    return Record(int(line["partition"]), int(line["offset"]), str(line["value"]))
