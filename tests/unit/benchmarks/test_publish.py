import json
from pathlib import Path

import pytest

from benchmarks import catalogue, plot, publish

MACHINE = {"processor": "Fast, 2 cores", "memory": "8 GiB"}
CASE = catalogue.NODE[0]
CLUSTER_CASE = next(case for case in catalogue.CLUSTERS if case.rounds is None)


def results(path: Path, case: str, **runs: list[float]) -> Path:
    found = {label: [{"rate": rate} for rate in rates] for label, rates in runs.items()}
    path.write_text(json.dumps({"machine": MACHINE, "cases": {case: found}, "voids": []}))
    return path


def page(path: Path, *marks: str) -> Path:
    path.write_text("\n".join(("before", *marks, "after")))
    return path


def test_the_last_file_counts_and_what_is_measured_elsewhere_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plot, "CHART", tmp_path / "chart.png")
    old = results(tmp_path / "old.json", CASE.name, one=[1.0, 2.0, 3.0])
    new = results(tmp_path / "new.json", CASE.name, one=[7.0] * 5)
    marks = (f"{publish.report.BEGIN}", "old", f"{publish.report.END}")  # type: ignore[attr-defined]
    other = (publish.CLUSTERS_BEGIN, "measured before", publish.CLUSTERS_END)
    readme = page(tmp_path / "README.md", *marks, *other)
    front = page(tmp_path / "FRONT.md", publish.FRONT_BEGIN, publish.FRONT_END)
    publish.publish([old, new], readme, front)
    text = readme.read_text()
    assert "Medians of 5 interleaved rounds on Fast, 2 cores" in text
    assert "| one | 7 records/s |" in text
    assert "measured before" in text
    assert text.endswith("after")
    assert publish.FRONT_CHART in front.read_text()


def test_cases_of_clusters_have_a_table_of_their_own(tmp_path: Path) -> None:
    file = results(tmp_path / "one.json", CLUSTER_CASE.name, one=[1.0])
    assert publish.read([file], catalogue.NODE) == []
    (found,) = publish.read([file], catalogue.CLUSTERS)
    assert found.machine == MACHINE


def test_how_many_rounds() -> None:
    few, many = (publish.Figures(CASE, {"one": [{"rate": 1.0}] * count}) for count in (3, 5))  # type: ignore[attr-defined]
    assert publish.rounds([few, few]) == "3"
    assert publish.rounds([many, few]) == "3 to 5"
