"""What came of all cells so far, kept beside the code, so that a row can be run alone."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from compatibility.outcome import Outcome

RESULTS: Final = Path(__file__).with_name("results.json")


@dataclass
class Row:
    """What came of a client."""

    version: str
    cells: dict[str, Outcome] = field(default_factory=dict)
    """By the name of the check."""


def read(path: Path = RESULTS) -> dict[str, Row]:
    """By the name of the client."""
    if not path.exists():
        return {}
    content = json.loads(path.read_text())
    return {
        name: Row(row["version"], {check: Outcome(*cell) for check, cell in row["cells"].items()})
        for name, row in content.items()
    }


def write(rows: dict[str, Row], path: Path = RESULTS) -> None:
    content = {
        name: {"version": row.version, "cells": dict(sorted(row.cells.items()))}
        for name, row in sorted(rows.items())
    }
    path.write_text(json.dumps(content, indent=1) + "\n")
