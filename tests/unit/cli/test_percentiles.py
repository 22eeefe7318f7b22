import random

import pytest

from streamlog.cli.bench import percentiles


def test_each_is_the_least_value_that_so_many_do_not_exceed() -> None:
    values = list(range(1, 1001))
    random.Random(1).shuffle(values)
    found = percentiles(values)
    assert found == {"p50": 500, "p90": 900, "p99": 990, "p99.9": 999, "max": 1000}


@pytest.mark.parametrize("count", [1, 2, 3, 99, 100, 101, 999])
def test_of_few_values_too(count: int) -> None:
    values = [float(i) for i in range(count)]
    found = percentiles(values)
    for name, share in {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}.items():
        not_above = sum(value <= found[name] for value in values)
        below = sum(value < found[name] for value in values)
        assert below < share * count + 1e-9 <= not_above + 1e-6
    assert found["max"] == count - 1


def test_of_nothing_there_is_none() -> None:
    assert percentiles([]) == {}
