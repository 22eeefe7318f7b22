"""What grows is found, and what only moves is not."""

import random
from collections.abc import Callable

import pytest

from tests.soak.samples import NodeSample, Sample
from tests.soak.verdict import LIMITS_PER_HOUR, measures, theil_sen

HOUR_S = 3_600.0
EVERY_S = 30.0


def node(**changed: float) -> NodeSample:
    fields: dict[str, float] = {"pid": 7, "resident_mib": 100, "open_files": 60, "threads": 12}
    fields |= {"cpu_s": 1, "files": 300, "disk_mib": 50, **changed}
    return NodeSample(**fields)  # type: ignore[arg-type]


def soak(
    hours: float, at: Callable[[float], dict[str, float]], latency_ms: Callable[[float], float]
) -> list[Sample]:
    count = int(hours * HOUR_S / EVERY_S)
    return [
        Sample(
            number * EVERY_S, 0, {1: node(**at(number * EVERY_S))},
            latency_ms(number * EVERY_S), 10 * latency_ms(number * EVERY_S), {},
        )
        for number in range(count)
    ]  # fmt: skip


def growing(samples: list[Sample]) -> set[str]:
    return {it.name for it in measures(samples) if it.grows}


def flat(_: float) -> float:
    return 1.0


@pytest.mark.parametrize("name", LIMITS_PER_HOUR)
def test_a_leak_is_found_in_the_noise(name: str) -> None:
    drawn, limit = random.Random(1), LIMITS_PER_HOUR[name]

    def at(seconds: float) -> dict[str, float]:
        base = float(getattr(node(), name))
        return {name: base + 2 * limit * seconds / HOUR_S + drawn.gauss(0, limit)}

    assert growing(soak(4, at, flat)) == {name}


def test_noise_steps_back_and_a_warm_up_are_no_growth() -> None:
    drawn = random.Random(2)

    def at(seconds: float) -> dict[str, float]:
        warm = min(seconds / 600, 1.0)
        return {
            "resident_mib": 60 + 40 * warm + drawn.gauss(0, 3),
            "files": 300 + 200 * warm + seconds % 300 / 3,
            "disk_mib": 50 * warm + drawn.uniform(0, 20),
            "open_files": 60 + drawn.randrange(20),
        }

    assert growing(soak(4, at, lambda _: drawn.uniform(1, 2))) == set()


def test_a_step_that_stays_is_growth_only_if_it_goes_on() -> None:
    assert growing(soak(8, lambda s: {"threads": 12 + (s > HOUR_S)}, flat)) == set()
    assert growing(soak(8, lambda s: {"threads": 12 + s // HOUR_S}, flat)) == {"threads"}


def test_latency_that_rises_is_found() -> None:
    assert growing(soak(4, lambda _: {}, lambda s: 1 + s / HOUR_S)) == {"p50_ms", "p99_ms"}


def test_lives_are_looked_at_one_by_one() -> None:
    """A node that is started again begins with little; that is no growth, and hides none."""

    def at(seconds: float) -> dict[str, float]:
        life_s = seconds % (2 * HOUR_S)
        return {"pid": 7 + seconds // (2 * HOUR_S), "resident_mib": 60 + 10 * life_s / HOUR_S}

    found = [it for it in measures(soak(4, at, flat)) if it.name == "resident_mib"]
    assert [it.grows for it in found] == [True, True]
    assert all(9.9 < it.per_hour < 10.1 for it in found)


def test_a_short_life_says_nothing() -> None:
    assert measures(soak(0.5, lambda s: {"resident_mib": s}, flat)) == []


def test_the_slope_is_that_of_most_pairs() -> None:
    points = [(float(i), 2.0 * i) for i in range(500)]
    points[100] = (100.0, 1e9)
    assert theil_sen(points) == 2.0
    assert theil_sen([(1.0, 1.0)]) == 0.0
