import json
from pathlib import Path

from benchmarks import report
from benchmarks.case import Case, Figures, Metric, Variant

RATE = Metric("rate", "records/s")
VARIANTS = (Variant("peer", lambda *_: {}), Variant("ours", lambda *_: {}))


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
