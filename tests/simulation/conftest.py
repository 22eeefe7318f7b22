import logging
from collections.abc import Callable, Iterator
from dataclasses import asdict

import pytest

from tests.simulation.seeds import Count, Player

PROPERTY = "simulation"


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """A simulated node has much to say about what is done to it; others are heard again after."""
    caplog.set_level(logging.CRITICAL, logger="streamlog")


@pytest.fixture
def player(record_property: Callable[[str, object], None]) -> Iterator[Player]:
    """What it has played is in the test's report, whichever worker it comes from."""
    player = Player()
    yield player
    counts = {name: asdict(count) for name, count in player.counts.items()}
    record_property(PROPERTY, counts)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Summary())


class Summary:
    """How much was played, and how fast."""

    def __init__(self) -> None:
        self._counts: dict[str, Count] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "teardown":
            return
        for name, counts in report.user_properties:
            if name == PROPERTY:
                for world, count in dict(counts).items():  # type: ignore[call-overload]
                    self._counts.setdefault(world, Count()).add(Count(**count))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for name, count in sorted(self._counts.items()):
            terminalreporter.write_line(f"simulation: {name}: {count}")
