"""A soak in two short pieces: all clients work through faults, nothing is lost, and the second one goes on."""

from pathlib import Path

import pytest

from tests.soak.plot import draw
from tests.soak.run import FAULTS, Plan, read_samples, run_piece

pytestmark = pytest.mark.slow

CLIENTS = {"clicks", "jobs", "jobs done", "moments", "orders", "profiles", "puts", "read"}
CLIENTS |= {"transactions", "transferred"}


@pytest.mark.filterwarnings(
    "ignore:unclosed:ResourceWarning"
)  # nats-py's, of servers that are gone
def test_two_pieces(tmp_path: Path) -> None:
    told: list[str] = []
    plan = Plan(hours=60 / 3_600, rate=50, sample_s=10, fault_s=12, kinds=FAULTS, seed=3)
    assert run_piece(tmp_path, plan, told.append) == []
    assert run_piece(tmp_path, plan._replace(hours=20 / 3_600, fault_s=0), told.append) == []
    samples = read_samples(tmp_path)
    assert {it.piece for it in samples} == {0, 1}
    assert [it.at_s for it in samples] == sorted(it.at_s for it in samples)
    first = [it for it in samples if it.piece == 0]
    assert first[-1].counts.keys() >= CLIENTS
    assert sum(len(it.faults) for it in first) >= 2
    assert len(told) == len(samples)
    assert all(it.resident_mib > 20 and it.open_files > 10 for it in first[0].nodes.values())
    draw(samples, tmp_path / "soak.png")
    assert (tmp_path / "soak.png").stat().st_size > 10_000
