"""The tests of a planted module find some of its mutants, and the tool says which."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutation.mutants import Mutant, MutatedModule
from tests.mutation.results import Equivalents, Results, Row, rows, sample, table
from tests.mutation.trial import Outcome, Trial

ROOT = Path(__file__).parents[3]

PLANTED = """
from functools import wraps


def counted(call):
    @wraps(call)
    def inner(*arguments):
        return call(*arguments)

    return inner


class Planted:
    @property
    def size(self) -> int:
        return 1 + 1

    @staticmethod
    @counted
    def first(items, wanted):
        place = 0
        while items[place] != wanted:
            place += 1
        return place

    def unused(self) -> int:
        return 3

    def untested(self, items) -> None:
        items.sort()
"""
TESTS = """
import planted


def test_first():
    assert planted.Planted.first([5, 6, 7], 7) == 2


def test_size(tmp_path):
    tmp_path.joinpath("left").touch()
    assert planted.Planted().size == 2


def test_that_judges_nothing():
    planted.Planted().untested([1])


def test_that_fails_always():
    planted.Planted().unused()
    raise ValueError
"""
RUN = """
import sys
from pathlib import Path

sys.path.insert(0, ".")  # of this folder
from tests.mutation.mutants import MutatedModule
from tests.mutation.results import Results
from tests.mutation import trial

trial.ITEM_CPU_MIN_S = 0.3
module = MutatedModule("planted", Path("planted.py").absolute())
results = Results(Path("results.jsonl"))
trial.run(
    [module],
    module.mutants,
    ["test_planted.py"],
    reaches=Path("reaches.json"),
    budget_s=5,
    on_trial=results.add,
    told=print,
)
"""


def test_killed_and_surviving_mutants(tmp_path: Path) -> None:
    (tmp_path / "planted.py").write_text(PLANTED)
    (tmp_path / "test_planted.py").write_text(TESTS)
    (tmp_path / "run.py").write_text(RUN)
    done = subprocess.run(
        [sys.executable, "run.py"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (
        "not used, because they fail without a mutant: ['test_planted.py::test_that_fails_always']"
        in done.stdout
    )
    results = Results(tmp_path / "results.jsonl")
    module = MutatedModule("planted", tmp_path / "planted.py")
    outcomes = {(m.function, m.change): results.outcome(m) for m in module.mutants}
    killed, survived = Outcome.KILLED, Outcome.SURVIVED
    first = "Planted.first"
    assert outcomes == {
        ("counted", "return inner -> return None"): Outcome.NOT_REACHED,  # runs at the import
        ("counted", "return call(*arguments) -> return None"): killed,
        ("Planted.size", "return 1 + 1 -> return None"): killed,
        ("Planted.size", "1 + 1 -> 1 - 1"): killed,
        ("Planted.size", "1 -> 2"): killed,
        (first, "0 -> 1"): survived,
        (first, "items[place] != wanted -> False"): killed,
        (first, "place += 1 -> removed"): Outcome.TIMED_OUT,
        (first, "place += 1 -> place -= 1"): killed,
        (first, "1 -> 2"): survived,
        (first, "return place -> return None"): killed,
        ("Planted.unused", "3 -> 4"): Outcome.NOT_REACHED,
        ("Planted.unused", "3 -> 2"): Outcome.NOT_REACHED,
        ("Planted.untested", "items.sort() -> removed"): survived,
    }
    assert (tmp_path / "planted.py").read_text() == PLANTED


@pytest.fixture
def mutants(tmp_path: Path) -> list[Mutant]:
    path = tmp_path / "planted.py"
    path.write_text("def planted(a, b):\n    return a < b, a + b, a == b, not a\n")
    return MutatedModule("planted", path).mutants


def test_the_table(mutants: list[Mutant], tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    results = Results(path)
    outcomes = [Outcome.KILLED, Outcome.TIMED_OUT, Outcome.SURVIVED, Outcome.SURVIVED]
    for mutant, outcome in zip(mutants, outcomes, strict=False):
        results.add(Trial(mutant, outcome, "", 1, 0.1))
    with path.open("a") as file:
        file.write('{"key": "ab')  # a run was killed
    reasons = tmp_path / "equivalent.toml"
    reasons.write_text(
        f'[[mutant]]\nmodule = "planted"\nfunction = "planted"\nchange = "{mutants[2].change}"\nreason = "so it is"\n'
        '[[mutant]]\nmodule = "planted"\nfunction = "planted"\nchange = "gone"\nreason = "so it was"\n'
    )
    equivalents = Equivalents(reasons)
    assert equivalents.reason(mutants[2]) == "so it is"
    assert equivalents.stale(mutants, {"planted"}) == ["planted planted gone 0"]
    assert equivalents.stale(mutants, {"elsewhere"}) == []
    read = Results(path)
    module, total = rows("core", mutants, read, equivalents)
    assert total == Row("core", is_total=True, tried=4, killed=1, timed_out=1, equivalent=1)
    assert (module.name, total.survived, round(total.percent)) == ("planted", 1, 67)
    assert "all of core" in table([module, total])
    assert not read.is_due(mutants[3], again=False)
    assert read.is_due(mutants[3], again=True)
    assert not read.is_due(mutants[0], again=True)
    assert read.is_due(mutants[4], again=False)


def test_no_reason_is_no_excuse(tmp_path: Path) -> None:
    path = tmp_path / "equivalent.toml"
    path.write_text('[[mutant]]\nmodule = "a"\nfunction = "b"\nchange = "c"\nreason = " "\n')
    with pytest.raises(ValueError, match="has no reason"):
        Equivalents(path)


def test_a_larger_sample_holds_the_smaller_one(mutants: list[Mutant]) -> None:
    assert sample(mutants, None, 0) == mutants
    small, large = sample(mutants, 2, 7), sample(mutants, 4, 7)
    assert len(small) == 2
    assert set(small) < set(large)
    assert any(sample(mutants, 2, seed) != small for seed in range(9))
