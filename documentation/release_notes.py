"""A release's notes, out of CHANGELOG.md: ``python -m documentation.release_notes 0.1.0``."""

import re
import sys
from pathlib import Path
from typing import Final

CHANGELOG: Final = Path(__file__).parents[1] / "CHANGELOG.md"
UPGRADING: Final = """\
## Upgrading

One node after the other, without a pause: docs/runbooks/rolling-upgrade.md. What needs a higher
feature level is switched on by `streamlog cluster features upgrade`, once all nodes run this version.
"""


def notes(version: str, changelog: str) -> str:
    """The section of ``version`` or of Unreleased. Raises ValueError where there is none."""
    match = re.search(
        rf"^## \[?{re.escape(version)}\]?[^\n]*\n(.*?)(?=^## |\Z)",
        changelog,
        re.MULTILINE | re.DOTALL,
    )
    if match is None or not match[1].strip():
        raise ValueError(f"CHANGELOG.md has no section {version!r}, or nothing in it")
    return f"# streamlog {version}\n\n{match[1].strip()}\n\n{UPGRADING}"


if __name__ == "__main__":
    try:
        print(notes(sys.argv[1] if sys.argv[1:] else "Unreleased", CHANGELOG.read_text()), end="")
    except ValueError as error:
        sys.exit(str(error))
