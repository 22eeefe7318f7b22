import logging

import pytest


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """A simulated node has much to say about what is done to it; others are heard again after."""
    caplog.set_level(logging.CRITICAL, logger="streamlog")
