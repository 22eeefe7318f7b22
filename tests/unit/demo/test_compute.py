import pytest

from demo.compute import WrongFigure, compare
from demo.flights import Delays

DELAYS: Delays = {("UA", "EWR"): (3, 1.5, -2.0), ("B6", "JFK"): (1, 0.1, 7.0)}


def test_equal_figures_pass() -> None:
    compare(dict(DELAYS), DELAYS, "Spark")


@pytest.mark.parametrize("wrong", [(4, 1.5, -2.0), (3, 1.5000001, -2.0), (3, 1.5, None)])
def test_a_figure_that_differs_is_named(wrong: tuple[int, float, float]) -> None:
    with pytest.raises(
        WrongFigure, match=r"\('UA', 'EWR'\): Spark says .* pandas \(3, 1.5, -2.0\)"
    ):
        compare(DELAYS | {("UA", "EWR"): wrong}, DELAYS, "Spark")


def test_a_group_that_is_missing_or_invented_is_named() -> None:
    fewer = {("UA", "EWR"): DELAYS["UA", "EWR"]}
    with pytest.raises(WrongFigure, match=r"only one of .*\('B6', 'JFK'\)"):
        compare(fewer, DELAYS, "Spark")
    with pytest.raises(WrongFigure, match=r"only one of .*\('B6', 'JFK'\)"):
        compare(DELAYS, fewer, "Spark")
