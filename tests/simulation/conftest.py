import logging

import pytest

from tests.simulation.seeds import Player

PLAYER = pytest.StashKey[Player]()


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """A simulated node has much to say about what is done to it; others are heard again after."""
    caplog.set_level(logging.CRITICAL, logger="streamlog")


@pytest.fixture
def player(request: pytest.FixtureRequest) -> Player:
    """The same for all tests."""
    return request.config.stash.setdefault(PLAYER, Player())


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """How much was played, and how fast."""
    counts = config.stash.get(PLAYER, Player()).counts
    for name, count in sorted(counts.items()):
        terminalreporter.write_line(f"simulation: {name}: {count}")
