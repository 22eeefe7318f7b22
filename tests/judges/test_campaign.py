"""Real nodes through faults of each kind: a published checker finds an order for all that their clients saw."""

from pathlib import Path
from typing import Final

import pytest

from tests.judges.campaign import Round, run_rounds
from tests.judges.faults import KINDS
from tests.judges.judging import why_missing

pytestmark = [pytest.mark.peers, pytest.mark.slow]

SEED: Final = 7
ROUNDS: Final = 3
FAULTS_OF_A_ROUND: Final = 5


async def test_what_clients_see_is_linearizable(tmp_path: Path) -> None:
    if reason := why_missing():
        pytest.skip(f"the judge cannot be built: {reason}")
    rounds: list[Round] = []
    await run_rounds(
        tmp_path,
        KINDS,
        SEED,
        lambda done: done < ROUNDS,
        faults_of_a_round=FAULTS_OF_A_ROUND,
        done=rounds.append,
    )
    assert len(rounds) == ROUNDS
    for one in rounds:
        print(one)
        assert len(one.faults) == FAULTS_OF_A_ROUND
        for model in ("log", "expected", "bucket", "commits"):
            assert f" {model} " in one.verdict
