"""Nodes as they are named on the command line."""

import pytest

from streamlog.cli.stream.move import parse_nodes
from streamlog.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "nodes"), [("1", (1,)), ("3,1,2", (3, 1, 2)), (" 10 , 2 ", (10, 2))]
)
def test_a_list_of_nodes(text: str, nodes: tuple[int, ...]) -> None:
    assert parse_nodes(text) == nodes


@pytest.mark.parametrize("text", ["", "1,", "0", "-1", "a", "1;2", "²"])
def test_what_is_no_list_of_nodes(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^NODES: .* is no list of nodes; write 1,2,3$"):
        parse_nodes(text)
