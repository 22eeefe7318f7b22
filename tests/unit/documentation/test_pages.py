"""What the checks of the pages find, what the site makes of links, and what is made out of the code.

The checks themselves are run by ``make lint`` (``python -m documentation --check``).
"""

import re
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from documentation import apis, checks, codes, configuration, node_file, stream_settings
from documentation.commands import MARK, with_commands
from documentation.links import (
    DOCS,
    anchors_of,
    links_of,
    on_config,
    problem,
    slug,
    without_outer_links,
)
from documentation.release_notes import notes
from streamlog.jetstream import dispatcher

# Links


def test_a_dead_link_is_found(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# A heading, `x`\n")
    page = tmp_path / "page.md"
    page.write_text(
        "[a](absent.md) [b](other.md#a-heading-x) [c](other.md#absent) [d](#here)\n"
        "# Here\n```\n[not](a-link)\n```\n[web](https://example.org/)\n"
    )
    assert [link.target for link in links_of(page)] == ["absent.md", "other.md", "other.md", ""]
    wrong = [found for link in links_of(page) if (found := problem(link))]
    assert len(wrong) == 2
    assert "absent.md is not there" in wrong[0]
    assert "#absent" in wrong[1]


def test_anchors_are_as_the_site_makes_them(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text('# With `code` & (more)\n## Kafka\'s own\n<a id="named"></a>\n')
    assert anchors_of(page) == {"with-code--more", "kafkas-own", "named"}
    assert slug("[A link](x.md) of it") == "a-link-of-it"


def test_links_out_of_the_docs_become_text() -> None:
    text = "[a](../README.md) [b](runbooks/README.md) [c](https://x.org) [`d`](../../x) [e](#f)"
    assert without_outer_links(text, PurePosixPath("page.md")) == (
        "a [b](runbooks/README.md) [c](https://x.org) `d` [e](#f)"
    )
    assert without_outer_links("[a](../page.md)", PurePosixPath("runbooks/x.md")) == (
        "[a](../page.md)"
    )


def test_pages_that_the_navigation_does_not_name_come_at_its_end() -> None:
    config = on_config(SimpleNamespace(nav=[{"A": "index.md"}]))
    assert config.nav[0] == {"A": "index.md"}
    assert "runbooks/lost-quorum.md" in config.nav[1]["More"]


# Problems of pages


@pytest.fixture
def pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of a few pages, with something wrong in each."""
    docs = tmp_path / "docs"
    (docs / "runbooks").mkdir(parents=True)
    (docs / "decisions").mkdir()
    (tmp_path / "streamlog" / "log").mkdir(parents=True)
    (tmp_path / "benchmarks").mkdir()
    texts = {
        "CONTRIBUTING.md": "Change `streamlog/absent.py`. Tested by `unit/test_absent.py`.",
        "mkdocs.yml": "nav:\n  - a: walks.md\n  - b: walks.md\n  - c: absent.md\n",
        "benchmarks/README.md": "1,000 records/s",
        "docs/comparison.md": "<!-- figures: -->1,000 records/s, **9,999 records/s**<!-- end of figures -->",
        "docs/glossary.md": "| `log/log.py` | `PartitionLog.reed` |\n",
        "docs/walks.md": "# Walks\n\n## One\n2 functions in 1 files.\n| `log/log.py` | `a` |\n",
        "docs/architecture.md": "## Packages\n| `raft` | |\n",
        "docs/releasing.md": "CPython 3.11 to 3.12",
        "docs/runbooks/README.md": "# Runbooks\n",
        "docs/runbooks/x.md": "```console\n$ streamlog cluster check --chekc\n```\n",
        "docs/decisions/README.md": "# Decisions\n",
        "docs/decisions/001-x.md": "# 2. A title\n",
        "pyproject.toml": (
            '[project]\nrequires-python = ">=3.10"\n'
            'classifiers = ["Python :: 3.11", "Python :: 3.13"]\n'
            '[tool.cibuildwheel]\nbuild = ["cp311-*"]\n'
        ),
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    guide = tmp_path / "docs" / "guide.md"
    guide.write_text("```console\n$ streamlog cluster chekc\n```\n[a](absent.md)\n")
    monkeypatch.setattr(checks, "ROOT", tmp_path)
    monkeypatch.setattr(checks, "DOCS", docs)
    monkeypatch.setattr(checks, "GUIDES", [guide])
    monkeypatch.setattr(checks, "PAGES", [guide, tmp_path / "CONTRIBUTING.md"])
    monkeypatch.setattr(checks, "runbooks", lambda: [docs / "runbooks" / "x.md"])
    for made in (apis, codes, configuration, node_file, stream_settings):
        monkeypatch.setattr(made, "PAGE", guide)
    return tmp_path


@pytest.mark.parametrize(
    ("check", "problems"),
    [
        (checks.links_lead_somewhere, ["absent.md is not there"]),
        (checks.runbooks_are_listed, ["add x.md"]),
        (checks.decisions_are_listed, ["its title has the number 2", "add 2, 'A title'"]),
        (checks.navigation_names_each_page_once, ["absent.md does not", "walks.md is named twice"]),
        (
            checks.named_functions_exist,
            ["only 1 names", "has no PartitionLog.reed", "only 1 names", "has no a"],
        ),
        (checks.walks_are_counted, ["write '1 functions in 1 files.'"]),
        (checks.recipes_name_files_that_exist, ["streamlog/absent.py does not exist"]),
        (checks.named_tests_exist, ["tests/unit/test_absent.py does not exist"]),
        (checks.packages_are_in_the_architecture, ["add log to the table"]),
        (checks.commands_exist, ["no command 'streamlog cluster chekc'"]),
        (checks.options_of_runbooks_exist, ["has no option --chekc"]),
        (checks.generated_pages_are_fresh, ["run `python -m"] * 5),
        (checks.figures_were_measured, ["only 2 figures", "'9,999 records/s' is not"]),
        (checks.comparison_says_where_others_are_better, ["only 0 rows"]),
        (
            checks.versions_of_python_agree,
            ["does not build for 3.11, 3.13", "is not >=3.11", "CPython 3.11 to 3.13"],
        ),
    ],
    ids=lambda it: getattr(it, "__name__", ""),
)
def test_a_problem_is_found(check: "checks.Check", problems: list[str], pages: Path) -> None:
    found = list(check())
    assert len(found) == len(problems), found
    assert all(part in line for part, line in zip(problems, found, strict=True)), found


def test_each_check_is_tried() -> None:
    [mark] = test_a_problem_is_found.pytestmark  # type: ignore[attr-defined]
    assert {case[0] for case in mark.args[1]} == set(checks.CHECKS)


def test_arguments_follow_a_command() -> None:
    assert checks.is_command(("cluster", "check"))
    assert checks.is_command(("consume", "orders"))
    assert not checks.is_command(("cluster",))


# What is made out of the code


def test_the_reference_of_the_apis_has_every_verb() -> None:
    text = apis.page()
    tables = (
        dispatcher._plain(Mock(), Mock(), Mock()),
        dispatcher._of_stream(Mock(), Mock(), Mock(), Mock()),
        dispatcher._of_consumer(Mock()),
    )
    verbs = {verb for table in tables for verb in table}
    assert [verb for verb in verbs if f"`{verb}`" not in re.sub(r"\.<\w+>", "", text)] == []


def test_every_setting_is_there_with_its_default() -> None:
    text = configuration.page()
    assert "| `port` | `9092` | 0 to 65_535 |" in text
    assert '| `sync` | `"commit"` | `commit`, `interval`, `os` |' in text
    assert "| `data_dir` | must be set |" in text


def test_every_setting_of_a_stream_is_there_with_its_names() -> None:
    text = stream_settings.page()
    assert (
        "| `retention_ms` | `retention.ms` | `max_age` | `--max-age` | ms, from 1, or -1 | `-1` |"
        in text
    )
    assert (
        "| `segment_bytes` | `segment.bytes` | `streamlog.segment_bytes` | `--segment-bytes` |"
        in text
    )


def test_the_reference_of_the_commands_has_each_with_its_options() -> None:
    text = with_commands(f"# Commands\n\n{MARK}\n")
    assert "\n### streamlog stream add\n" in text
    assert "\nstreamlog stream add STREAM [OPTIONS]\n" in text
    assert "\n| `--replicas` | " in text
    assert MARK not in text
    assert MARK in (DOCS / "commands.md").read_text()


def test_release_notes_are_a_section_of_the_changelog() -> None:
    text = "# C\n## Unreleased\n- new\n\n## [1.2.0] - 2027-01-01\n\n- that\n\n## 1.1.0\n- old\n"
    found = notes("1.2.0", text)
    assert "- that" in found
    assert "- old" not in found
    assert "- new" in notes("Unreleased", text)
    with pytest.raises(ValueError, match=r"no section '2\.0\.0'"):
        notes("2.0.0", text)
