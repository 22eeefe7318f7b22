import json
from pathlib import Path
from typing import Any

from benchmarks import catalogue, report
from benchmarks.case import Case, Figures, Metric, Target, Variant

RATE = Metric("rate", "records/s")


def _no_figures(*_: Any) -> dict[str, float]:
    return {}


VARIANTS = (Variant("peer", _no_figures), Variant("ours", _no_figures))


def figures() -> Figures:
    gathered = Figures(Case("a", "A case", (RATE,), VARIANTS))
    for rate in (100_000.0, 120_000.0, 90_000.0):
        gathered.add("peer", {"rate": rate, "server_us": 4.0, "messages": 10, "lost": 1})
        gathered.add("ours", {"rate": 2 * rate, "server_us": 1.0, "messages": 10})
    return gathered


def test_a_ratio_is_of_medians() -> None:
    gathered = figures()
    assert gathered.median("ours", "rate") == 200_000
    assert gathered.ratio("ours", RATE) == 2.0
    assert gathered.ratio("ours", Metric("nothing", "s")) is None


def test_a_metric_may_be_another_quantile_than_the_median() -> None:
    worst = Metric("rate", "records/s", quantile=1.0)
    assert figures().value("ours", worst) == 240_000
    assert figures().ratio("ours", worst) == 2.0


def test_the_table_says_what_was_lost_and_compares_with_the_first() -> None:
    peer, ours = report.rows(figures(), RATE)
    assert (peer.ratio, peer.lost) == ("", "10 % lost")
    assert (ours.value, ours.ratio, ours.lost) == ("200,000 records/s", "2.00x", "")
    assert ours.spread == "180,000-240,000"


def test_only_the_marked_section_is_rewritten(tmp_path: Path) -> None:
    path = tmp_path / "README.md"
    path.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    for _ in range(2):
        report.write_section(path, "new")
    assert path.read_text() == f"before\n{report.BEGIN}\n\nnew\n\n{report.END}\nafter\n"


def test_every_measurement_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "results" / "figures.json"
    report.write_json(path, [figures()], {"processor": "x"})
    assert len(json.loads(path.read_text())["cases"]["a"]["ours"]) == 3


def test_a_target_is_a_ratio_to_the_first_row_or_to_another_or_a_limit() -> None:
    rate, start = RATE, Metric("start_s", "s", digits=1, lower_is_better=True)
    ours = Variant(
        "ours",
        _no_figures,
        (Target(rate, 2.0), Target(rate, 10.0, beside="slow"), Target(start, 2.0, absolute=True)),
    )
    variants = (VARIANTS[0], ours, Variant("slow", _no_figures))
    gathered = Figures(Case("a", "A case", (rate, start), variants))
    gathered.add("peer", {"rate": 100.0, "start_s": 1.0})
    gathered.add("ours", {"rate": 190.0, "start_s": 1.5})
    gathered.add("slow", {"rate": 10.0, "start_s": 1.0})
    assert [reached for _, reached in report.judgements(gathered, "ours")] == [1.9, 19.0, 1.5]
    _, of_rate, beside, _ = report.rows(gathered, rate)
    assert (of_rate.ratio, of_rate.target, of_rate.met) == ("1.90x", "✘ ≥ 2x", False)
    assert (beside.label.strip(), beside.ratio) == ("beside slow", "19.00x")
    assert (beside.target, beside.met) == ("✔ ≥ 10x", True)
    assert of_rate.bar.index("┃") == 2 * report.BAR_UNITS
    _, of_start, _ = report.rows(gathered, start)
    assert (of_start.target, of_start.met) == ("✔ ≤ 2 s", True)
    assert of_start.bar.count("█") == round(0.75 * report.BAR_UNITS)


def test_what_was_not_measured_is_not_judged() -> None:
    ours = Variant("ours", _no_figures, (Target(RATE, 2.0),))
    gathered = Figures(Case("a", "A case", (RATE,), (VARIANTS[0], ours)))
    gathered.add("ours", {"rate": 1.0})
    assert list(report.judgements(gathered, "ours")) == []
    (row,) = report.rows(gathered, RATE)
    assert row.met is None


def test_results_can_be_read_back(tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    report.write_json(path, [figures()], {})
    other = Case("b", "Another", (RATE,), VARIANTS)
    (read,) = report.read_json(path, [other, figures().case])
    assert read.ratio("ours", RATE) == 2.0


def test_no_two_cases_have_one_name() -> None:
    names = [case.name for case in catalogue.ALL]
    assert len(names) == len(set(names))


def test_a_target_is_of_what_its_case_measures_and_beside_what_it_has() -> None:
    for case in catalogue.ALL:
        labels = {variant.label for variant in case.variants}
        for variant in case.variants:
            for target in variant.targets:
                assert target.metric in case.metrics
                assert target.beside is None or target.beside in labels
                assert target.absolute or variant is not case.variants[0]
