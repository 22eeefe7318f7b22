"""What the process that started us asks for, in the file that ``PEER_TESTS_ORDER`` names."""

import json
import os
from pathlib import Path
from typing import NamedTuple


class Order(NamedTuple):
    servers: list[str]
    """``host:port`` of each node; for a client of NATS the URL of each node's own port."""
    tests: list[str] | None
    """To be run; None where it is only asked which there are."""
    told: str
    """The file that the outcomes go to."""


def order() -> Order:
    return Order(**json.loads(Path(os.environ["PEER_TESTS_ORDER"]).read_text()))
