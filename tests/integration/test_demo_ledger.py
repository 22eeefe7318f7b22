"""The flights ordered into blocks by two nodes, delivered back and compared, as in the demo."""

from pathlib import Path

import pytest

from demo.ledger import run


async def test_some_flights_come_back_in_blocks(tmp_path: Path) -> None:
    said = await run(tmp_path, 5_000)
    assert said[-1].startswith("both chains have 11 blocks, tip ")


@pytest.mark.slow
async def test_all_flights_come_back_in_blocks(tmp_path: Path) -> None:
    said = await run(tmp_path)
    assert said[0].startswith("336,776 flights published")
