"""``config/node.toml``: every setting of a node with its description, as `streamlog config init` writes it."""

from pathlib import Path
from typing import Final

from streamlog.cli.node.config import HEAD
from streamlog.config.description import annotated_file

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = ROOT / "config" / "node.toml"


def page() -> str:
    """The whole file."""
    return annotated_file({("node", "data_dir"): "data/node-1"}, HEAD)
