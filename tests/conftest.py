"""What holds for every test, whatever it is about."""

import faulthandler
import gc
import io
import logging
import os
import signal
import sys
import warnings
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Final

import hypothesis
import pytest

from streamlog.app.extensions import stale_extensions

LOG_TAIL_BYTES: Final = 4_000
"""Of each server's log in the report of a failed test."""

WITH_SERVERS: Final = {"integration", "security", "spark"}

LONG_FIRST: Final = (
    "property/test_random_frames.py",
    "simulation/",
    "property/",
    "integration/test_encryption.py",
    "integration/test_same_answer.py",
    "integration/test_backup.py",
    "integration/test_cli_bench.py",
    "integration/test_compaction.py",
    "integration/test_cli_cluster.py",
    "integration/test_dev.py",
    "integration/test_cluster",
    "integration/",
    "spark/",
    "security/",
)
"""How the paths of files begin that take long, the longest first: a worker that takes such a file
last keeps all the others waiting. The very first waits most of its time: others run meanwhile.
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent

    def place(item: pytest.Item) -> int:
        name = item.path.relative_to(here).as_posix() if item.path.is_relative_to(here) else ""
        return next(
            (i for i, prefix in enumerate(LONG_FIRST) if name.startswith(prefix)), len(LONG_FIRST)
        )

    items.sort(key=place)


hypothesis.settings.register_profile("untimed", deadline=None)  # workers share the processors
hypothesis.settings.load_profile("untimed")


# Programs in Java live for seconds here: the optimising compiler would cost more than it brings.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """What is slow takes its time: only the other tests end at ``faulthandler_timeout``."""
    if item.get_closest_marker("slow") is not None:
        faulthandler.cancel_dump_traceback_later()


def pytest_configure() -> None:
    _check_extensions()
    _heed_signals()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Thousands of tests, which stay until the end, are not gone through for garbage again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def _check_extensions() -> None:
    """With stale extensions the tests would say nothing about these sources."""
    try:
        stale = stale_extensions()
    except ImportError as error:
        pytest.exit(f"{error}; run `setup.py build_ext --inplace`", 4)
    if stale:
        problem = f"compiled from other sources: {', '.join(stale)}"
        pytest.exit(f"{problem}; run `setup.py build_ext --inplace --force`", 4)


def _heed_signals() -> None:
    """A shell has what runs in its background ignore these, and so would every child of ours."""
    for number, handler in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGQUIT, signal.SIG_DFL),
    ):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """What a failed test has left open is its own affair.

    Its traceback keeps sockets and tasks alive, and a warning of them, which is an error, would
    come at some collection in the midst of an innocent test.
    """
    failed_before = item.session.testsfailed
    result = yield
    if item.session.testsfailed > failed_before:
        _let_go()
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test's report ends with what its servers logged.

    A timeout tells only what did not happen; the servers' logs tell why.
    """
    report = yield
    folder = getattr(item, "funcargs", {}).get("tmp_path")
    if report.failed and call.when == "call" and isinstance(folder, Path):
        for path in sorted(folder.glob("**/*.log")):
            if path.is_file() and not path.stem.isdigit():  # segments are named by numbers
                tail = path.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")
                report.sections.append((f"end of {path.relative_to(folder)}", tail))
    return report


def _let_go() -> None:
    for name in ("last_type", "last_value", "last_traceback", "last_exc"):
        vars(sys).pop(name, None)
    before, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            gc.collect()
    finally:
        sys.unraisablehook = before


@pytest.fixture(scope="module", autouse=True)
def nothing_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """On a busy machine nats-py and kafka-python leave a connection open that they lose while it is being opened. It is
    collected with its module, lest the warning, which is an error, fails a test of another one.
    """
    yield
    if WITH_SERVERS & set(request.path.parts):
        _let_go()


@pytest.fixture
def output() -> Iterator[io.StringIO]:
    """For ``configure_logs``, which changes what all tests log to."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield io.StringIO()
    logging.captureWarnings(False)
    logging.setLogRecordFactory(logging.LogRecord)
    root.handlers[:] = handlers
    root.setLevel(level)
