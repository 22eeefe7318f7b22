"""docs/comparison.md quotes benchmarks/README.md, and nothing else."""

import re

from documentation.links import DOCS, ROOT

FIGURE = re.compile(r"\d[\d,.]*(?: (?:records|lookups|requests)/s| ms| MB/s| s\b| % of)")


def quoted() -> list[str]:
    text = (DOCS / "comparison.md").read_text()
    figures = text.partition("<!-- figures:")[2].partition("<!-- end of figures -->")[0]
    plain = figures.replace("**", "")
    return FIGURE.findall(plain)


def measured() -> set[str]:
    return set(FIGURE.findall((ROOT / "benchmarks" / "README.md").read_text()))


def test_each_figure_was_measured() -> None:
    figures = quoted()
    assert len(figures) > 25
    assert [figure for figure in figures if figure not in measured()] == []


def test_a_figure_of_nobody_would_be_found() -> None:
    assert "9,999,999 records/s" not in measured()


def test_where_the_other_is_better_it_says_so() -> None:
    rows = re.findall(r"^\| .* \| (.*) \| (.*) \|$", (DOCS / "comparison.md").read_text(), re.M)
    assert sum(theirs.startswith("**") for _, theirs in rows) >= 5
