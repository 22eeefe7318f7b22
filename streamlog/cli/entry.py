"""Where the program begins: with all of its commands, or with the one that is run all the time."""

import sys
from typing import Final

PROBE: Final = "health"
"""Containers run it every few seconds: it does not wait until all other commands are loaded."""


def main() -> None:
    """Run the command in ``sys.argv``."""
    if sys.argv[1:2] == [PROBE]:
        from streamlog.cli.node.health_probe import main as run
    else:
        from streamlog.cli.program import main as run
    run()
