"""Trials of mutants: in one pytest process, which has collected the tests once, each mutant gets a fork of its own.

The fork replaces the code of the mutated function in memory and runs the tests that reach the changed lines, the
fastest first, until one fails. So no file changes, and nothing is imported twice.
"""

import ctypes
import gc
import hashlib
import importlib
import json
import mmap
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, Final, NoReturn

import pytest

from tests.mutation.mutants import PROBE, Mutant, MutatedModule

ITEM_CPU_MIN_S: Final = 3.0
ITEM_WALL_MIN_S: Final = 30.0
SLOWER_MAX: Final = 6
"""A test may take so many times what it took without a mutant. What takes longer has no end."""
MEMORY_BYTES: Final = 2 << 30
"""A mutant may use so much more than the tests that are loaded."""
PR_SET_PDEATHSIG: Final = 1
FAILED: Final = 42
"""The exit status of a fork in which a test failed."""


Functions = dict[tuple[str, str, int], list[FunctionType]]
"""Of the mutated modules, by file, qualified name and first line."""


class Outcome(StrEnum):
    KILLED = "killed"
    TIMED_OUT = "timed out"
    SURVIVED = "survived"
    NOT_REACHED = "not reached"
    """No test runs the line."""


@dataclass(frozen=True)
class Trial:
    mutant: Mutant
    outcome: Outcome
    test: str
    """The one that killed it."""
    tests: int
    """So many reach the line."""
    wall_s: float


@dataclass
class _Reach:
    """What one test did without a mutant."""

    lines: set[tuple[str, int]]
    """Of mutated modules: file and line."""
    wall_s: float = 0.0


class _Hypothesis:
    """The same examples for each mutant, and no search for the smallest one that fails."""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection(self) -> Any:
        import hypothesis  # pytest's plugin of the same name wants to be first

        hypothesis.settings.register_profile(
            "mutation",
            hypothesis.settings.get_profile(hypothesis.settings.get_current_profile_name()),
            database=None,
            derandomize=True,
            deadline=None,
            phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
            suppress_health_check=list(hypothesis.HealthCheck),
        )
        hypothesis.settings.load_profile("mutation")
        return (yield)


class _Trials:
    """The plugin that runs mutants where pytest would run the tests."""

    def __init__(
        self,
        modules: Sequence[MutatedModule],
        mutants: Sequence[Mutant],
        left_out: Callable[[str], bool],
        reaches: Path,
        budget_s: float,
        on_trial: Callable[[Trial], None],
        told: Callable[[str], None],
    ) -> None:
        self._modules = {module.module: module for module in modules}
        self._mutants = mutants
        self._left_out = left_out
        self._reaches = reaches
        self._budget_s = budget_s
        self._on_trial = on_trial
        self._told = told
        self._kills: Counter[tuple[str, str, str]] = Counter()
        """How many mutants of a function a test has killed."""
        self._place = mmap.mmap(-1, 8)
        """The number of the test that a fork runs."""

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            raise pytest.UsageError("the tests cannot be collected")
        items = [item for item in session.items if not self._left_out(item.nodeid)]
        for name in self._modules:
            importlib.import_module(name)
        functions = self._functions()
        reaches = self._without_mutants(items, functions)
        for mutant in self._mutants:
            self._on_trial(self._trial(mutant, items, reaches, functions))
            basetemp = session.config.option.basetemp
            shutil.rmtree(basetemp, ignore_errors=True)
        return True

    def _functions(self) -> Functions:
        gc.unfreeze()
        paths = {str(module.path) for module in self._modules.values()}
        found: Functions = {}
        for thing in gc.get_objects():
            if isinstance(thing, FunctionType) and thing.__code__.co_filename in paths:
                code = thing.__code__
                key = code.co_filename, code.co_qualname, code.co_firstlineno
                found.setdefault(key, []).append(thing)
        gc.freeze()
        return found

    def _without_mutants(self, items: list[pytest.Item], functions: Functions) -> dict[str, _Reach]:
        """In a fork, too: what the tests leave behind is not there for mutants."""
        known = json.loads(self._reaches.read_text()) if self._reaches.exists() else {}
        sources = b"".join(module.path.read_bytes() for module in self._modules.values())
        texts = {path: _read_with_neighbours(path) for path in {item.path for item in items}}
        keys = {
            item.nodeid: hashlib.sha256(
                sources + texts[item.path] + item.nodeid.encode()
            ).hexdigest()
            for item in items
        }
        new = [item for item in items if keys[item.nodeid] not in known]
        if new:
            began = time.monotonic()
            known |= {keys[name]: reach for name, reach in self._run_apart(new, functions).items()}
            self._reaches.parent.mkdir(parents=True, exist_ok=True)
            self._reaches.write_text(json.dumps(known))
            self._told(f"{len(new)} tests without a mutant: {time.monotonic() - began:.0f} s")
        reaches = {item.nodeid: known[keys[item.nodeid]] for item in items}
        if failed := [name for name, reach in reaches.items() if reach is None]:
            self._told(f"not used, because they fail without a mutant: {failed}")
        return {
            name: _Reach({(file, line) for file, line in reach["lines"]}, reach["wall_s"])
            for name, reach in reaches.items()
            if reach is not None
        }

    def _run_apart(self, items: list[pytest.Item], functions: Functions) -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "reach.json")
            process = os.fork()
            if not process:
                self._run_all(items, path, functions)
            _wait(process)
            if not path.exists():
                raise pytest.UsageError("the tests end the process without a mutant")
            reaches: dict[str, Any] = json.loads(path.read_text())
            return reaches

    def _run_all(self, items: list[pytest.Item], path: Path, functions: Functions) -> NoReturn:
        """With probes, which cost little."""
        _be_quiet()
        lines: set[tuple[str, int]] = set()
        for name, module in self._modules.items():
            _replace(functions, module, module.probed())
            probe = _Probe(str(module.path), lines)
            vars(sys.modules[name])[PROBE] = probe.reached
        reaches: dict[str, dict[str, Any] | None] = {}
        failures = _Failures(lambda: None)
        items[0].config.pluginmanager.register(failures)
        for item, following in zip(items, [*items[1:], None], strict=True):
            failures.count = 0
            lines.clear()
            began = time.monotonic()
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            wall_s = time.monotonic() - began
            reach = {"lines": sorted(lines), "wall_s": wall_s}
            reaches[item.nodeid] = None if failures.count else reach
        path.write_text(json.dumps(reaches))
        os._exit(0)

    def _trial(
        self,
        mutant: Mutant,
        items: list[pytest.Item],
        reaches: dict[str, _Reach],
        functions: Functions,
    ) -> Trial:
        module = self._modules[mutant.module]
        place_of = str(module.path), mutant.line
        reaching = [
            item
            for item in items
            if item.nodeid in reaches and place_of in reaches[item.nodeid].lines
        ]
        if not reaching:
            return Trial(mutant, Outcome.NOT_REACHED, "", 0, 0.0)

        def place(item: pytest.Item) -> tuple[int, bool, float]:
            """First those that have found others of this function, then the module's own, then the fastest."""
            kills = self._kills[mutant.module, mutant.function, item.nodeid]
            cost_s = reaches[item.nodeid].wall_s
            is_own = item.path.stem == f"test_{module.path.stem}"
            return (-kills if cost_s < 1 else 0), not (is_own and cost_s < 1), cost_s

        reaching.sort(key=place)
        chosen: list[pytest.Item] = []
        cost_s = 0.0
        for item in reaching:
            cost_s += reaches[item.nodeid].wall_s
            if chosen and cost_s > self._budget_s:
                break
            chosen.append(item)
        began = time.monotonic()
        process = os.fork()
        if not process:
            self._run(mutant, functions, chosen, reaches)
        status = _wait(process)
        wall_s = time.monotonic() - began
        outcome = _outcome(status)
        test = ""
        if outcome is not Outcome.SURVIVED:
            self._place.seek(0)
            test = chosen[int.from_bytes(self._place.read(8), "little")].nodeid
            self._kills[mutant.module, mutant.function, test] += 1
        return Trial(mutant, outcome, test, len(reaching), wall_s)

    def _run(
        self,
        mutant: Mutant,
        functions: Functions,
        items: list[pytest.Item],
        reaches: dict[str, _Reach],
    ) -> NoReturn:
        _be_quiet()
        _limit_memory()
        module = self._modules[mutant.module]
        _replace(functions, module, module.compiled(mutant))
        items[0].config.pluginmanager.register(_Failures(lambda: os._exit(FAILED)))
        status = 1
        try:
            for number, (item, following) in enumerate(zip(items, [*items[1:], None], strict=True)):
                self._place.seek(0)
                self._place.write(number.to_bytes(8, "little"))
                _limit_time(reaches[item.nodeid].wall_s)
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            status = 0
        finally:
            os._exit(status)


class _Failures:
    def __init__(self, on_failure: Callable[[], None]) -> None:
        self.count = 0
        self._on_failure = on_failure

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.count += 1
            self._on_failure()


def _read_with_neighbours(path: Path) -> bytes:
    """A test, and what it may use of its folder: worlds, data."""
    files = [file for file in path.parent.rglob("*") if file.suffix in {".py", ".txt"}]
    used = sorted(file for file in files if not file.name.startswith("test_"))
    return b"".join(file.read_bytes() for file in [path, *used])


def _wait(process: int) -> int:
    """For its end, which an interruption of this process is, too."""
    try:
        return os.waitpid(process, 0)[1]
    except BaseException:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        raise


def _outcome(status: int) -> Outcome:
    if os.WIFSIGNALED(status):
        timers = (signal.SIGPROF, signal.SIGALRM)
        return Outcome.TIMED_OUT if os.WTERMSIG(status) in timers else Outcome.KILLED
    return Outcome.SURVIVED if os.WEXITSTATUS(status) == 0 else Outcome.KILLED


def end_with_parent() -> None:
    """A fork ends when the process that waits for it is killed."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _be_quiet() -> None:
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)


def _limit_memory() -> None:
    used_bytes = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limit = used_bytes + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _limit_time(usual_s: float) -> None:
    """The kernel ends the process, whatever it does. The wall clock is for what waits without an end."""
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, max(ITEM_CPU_MIN_S, SLOWER_MAX * usual_s))
    signal.setitimer(signal.ITIMER_REAL, max(ITEM_WALL_MIN_S, 2 * SLOWER_MAX * usual_s))


@dataclass(frozen=True)
class _Probe:
    file: str
    lines: set[tuple[str, int]]

    def reached(self, line: int) -> None:
        self.lines.add((self.file, line))


def _replace(
    functions: Functions, module: MutatedModule, codes: dict[tuple[str, int], CodeType]
) -> None:
    for (file, name, line), known in functions.items():
        if file == str(module.path) and (name, line) in codes:
            for function in known:
                function.__code__ = codes[name, line]


def run(
    modules: Sequence[MutatedModule],
    mutants: Sequence[Mutant],
    tests: Iterable[str],
    *,
    left_out: Callable[[str], bool] = lambda name: False,
    reaches: Path,
    budget_s: float,
    on_trial: Callable[[Trial], None],
    told: Callable[[str], None] = lambda line: None,
) -> None:
    """Each mutant against ``tests``, which are arguments of pytest. The file ``reaches`` keeps which lines
    each test reaches.

    Raises ``RuntimeError`` if the tests cannot be run without a mutant.
    """
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        trials = _Trials(modules, mutants, left_out, reaches, budget_s, on_trial, told)
        arguments = ["-q", "-s", "-p", "no:cacheprovider", "-p", "no:xdist", "--basetemp"]
        arguments += [str(Path(folder, "tmp")), "-o", "faulthandler_timeout=0", *tests]
        status = pytest.main(arguments, plugins=[_Hypothesis(), trials])
    if status == pytest.ExitCode.INTERRUPTED:
        raise KeyboardInterrupt
    if status not in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}:
        raise RuntimeError(f"pytest ended with {status!r}")
