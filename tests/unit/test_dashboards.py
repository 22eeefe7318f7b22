"""Dashboards of Grafana: whole, without gaps, and about series that there are."""

import re
from typing import Any

import pytest

from tests.dashboards import FOLDER, NAMES, Query, board, filled_in, queries
from tests.unit.metric_families import families

QUERIES = list(queries())


def test_each_file_is_known() -> None:
    assert {path.stem for path in FOLDER.glob("*.json")} == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_panels_have_numbers_of_their_own_and_do_not_overlap(name: str) -> None:
    content = board(name)
    panels = content["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places: set[Any] = set()
    for panel in panels:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not cells & places, panel["title"]
        places |= cells
    assert content["uid"] == f"streamlog-{name}"
    variables = {it["name"] for it in content["templating"]["list"]}
    assert {"datasource", "job", "instance"} <= variables


@pytest.mark.parametrize("query", QUERIES, ids=lambda it: f"{it.board}: {it.panel}")
def test_it_asks_for_series_that_there_are(query: Query) -> None:
    names = set(re.findall(r"\b(?:streamlog|process)_\w+", filled_in(query.expression)))
    names = {re.sub(r"_bucket$", "", name) for name in names}
    assert names and names <= families().keys()
    assert 'job="$job"' in query.expression, "several clusters may share a Prometheus"
