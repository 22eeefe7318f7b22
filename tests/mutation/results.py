"""What became of mutants, and which of them no test can kill."""

import hashlib
import json
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.mutation.mutants import Mutant
from tests.mutation.trial import Outcome, Trial

SURVIVED: Final = {Outcome.SURVIVED, Outcome.NOT_REACHED}


class Results:
    """One JSON object a line, the last one of a mutant counts. A mutant of changed code is another one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._outcomes: dict[str, Outcome] = {}
        self.read()

    def read(self) -> None:
        """Other processes may have added some."""
        if self._path.exists():
            for line in self._path.read_text().splitlines():
                if line.endswith("}"):  # a run that was killed may have left half a line
                    result = json.loads(line)
                    self._outcomes[result["key"]] = Outcome(result["outcome"])

    def add(self, trial: Trial) -> None:
        mutant = trial.mutant
        self._outcomes[mutant.key] = trial.outcome
        result = {
            "key": mutant.key,
            "module": mutant.module,
            "function": mutant.function,
            "line": mutant.line,
            "change": mutant.change,
            "outcome": trial.outcome,
            "test": trial.test,
            "tests": trial.tests,
            "wall_s": round(trial.wall_s, 2),
        }
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            file.write(json.dumps(result) + "\n")

    def outcome(self, mutant: Mutant) -> Outcome | None:
        return self._outcomes.get(mutant.key)

    def is_due(self, mutant: Mutant, *, again: bool) -> bool:
        return self.outcome(mutant) is None or (again and self.is_survivor(mutant))

    def is_survivor(self, mutant: Mutant) -> bool:
        return self.outcome(mutant) in SURVIVED


class Equivalents:
    """Mutants that do what the code does, as far as anything can tell, each with the reason."""

    def __init__(self, path: Path) -> None:
        self._reasons: dict[tuple[str, str, str, int], str] = {}
        for entry in tomllib.loads(path.read_text()).get("mutant", []):
            numbers = entry.get("numbers", [0])
            for number in numbers:
                key = entry["module"], entry["function"], entry["change"], number
                if not entry["reason"].strip() or key in self._reasons:
                    raise ValueError(f"{path.name}: {key} has no reason, or is there twice")
                self._reasons[key] = entry["reason"]

    def reason(self, mutant: Mutant) -> str:
        return self._reasons.get(_place(mutant), "")

    def stale(self, mutants: Iterable[Mutant], modules: set[str]) -> list[str]:
        there = {_place(mutant) for mutant in mutants}
        return [
            " ".join(map(str, key))
            for key in self._reasons
            if key[0] in modules and key not in there
        ]


@dataclass
class Row:
    name: str
    is_total: bool = False
    tried: int = 0
    killed: int = 0
    timed_out: int = 0
    equivalent: int = 0

    @property
    def survived(self) -> int:
        return self.tried - self.killed - self.timed_out - self.equivalent

    @property
    def percent(self) -> float:
        judged = self.tried - self.equivalent
        return 100 * (self.killed + self.timed_out) / judged if judged else 100.0


def rows(
    name: str, mutants: Sequence[Mutant], kept: Results, equivalents: Equivalents
) -> list[Row]:
    """One for each module, and one for all of them."""
    total = Row(name, is_total=True)
    found: dict[str, Row] = {}
    for mutant in mutants:
        outcome = kept.outcome(mutant)
        is_equivalent = bool(equivalents.reason(mutant))
        if outcome is None and not is_equivalent:
            continue
        for row in (total, found.setdefault(mutant.module, Row(mutant.module))):
            row.tried += 1
            row.equivalent += is_equivalent
            if not is_equivalent:
                row.killed += outcome is Outcome.KILLED
                row.timed_out += outcome is Outcome.TIMED_OUT
    return [*sorted(found.values(), key=lambda row: row.name), total]


def table(rows: Sequence[Row]) -> str:
    head = f"{'':48} {'mutants':>8} {'killed':>7} {'timed out':>9} {'equivalent':>10} {'survived':>8} {'%':>6}"
    lines = [
        f"{('all of ' + row.name) if row.is_total else row.name:48} {row.tried:8} {row.killed:7}"
        f" {row.timed_out:9} {row.equivalent:10} {row.survived:8} {row.percent:6.1f}"
        for row in rows
    ]
    return "\n".join([head, *lines])


def sample(mutants: Sequence[Mutant], count: int | None, seed: int) -> list[Mutant]:
    """In an order that depends on the seed; a larger sample holds all of a smaller one."""

    def draw(mutant: Mutant) -> str:
        return hashlib.sha256(f"{seed} {mutant.key}".encode()).hexdigest()

    if count is None:
        return list(mutants)
    chosen = set(sorted(mutants, key=draw)[:count])
    return [mutant for mutant in mutants if mutant in chosen]


def _place(mutant: Mutant) -> tuple[str, str, str, int]:
    return mutant.module, mutant.function, mutant.change, mutant.number
