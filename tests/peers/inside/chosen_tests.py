"""A pytest plugin: runs the tests that were asked for and writes down what became of each."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from order import order

TEST_TIMEOUT_S = 180
"""Of one test; peers have some that would wait for ever."""

told: dict[str, Any] = {"collected": [], "outcomes": {}, "details": {}}


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    told["collected"] = [item.nodeid for item in items]
    chosen = order().tests
    if chosen is not None:
        wanted = set(chosen)
        config.hook.pytest_deselected(items=[it for it in items if it.nodeid not in wanted])
        items[:] = [it for it in items if it.nodeid in wanted]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Iterator[None]:
    def overdue(*_: object) -> None:
        raise TimeoutError(f"not at its end after {TEST_TIMEOUT_S} s")

    before = signal.signal(signal.SIGALRM, overdue)
    signal.alarm(TEST_TIMEOUT_S)
    try:
        return (yield)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """The worst of setup, call and teardown counts."""
    if report.failed:
        told["outcomes"][report.nodeid] = "failed"
        told["details"][report.nodeid] = report.longreprtext
    elif report.skipped or report.when == "call":
        told["outcomes"].setdefault(report.nodeid, report.outcome)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        told["outcomes"][report.nodeid] = "failed"
        told["details"][report.nodeid] = report.longreprtext


def pytest_sessionfinish() -> None:
    Path(order().told).write_text(json.dumps(told))
