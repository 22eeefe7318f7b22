"""The documentation's links lead somewhere, its commands exist, its generated pages are fresh."""

import re
import shlex
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from typer.main import get_command

from documentation import configuration
from documentation.commands import MARK, with_commands
from documentation.links import (
    DOCS,
    ROOT,
    anchors_of,
    links_of,
    named_in,
    on_config,
    problem,
    slug,
    without_outer_links,
)
from documentation.release_notes import notes
from streamlog.cli.program import app
from tests.runbook import pages, steps

TOP = [ROOT / f"{name}.md" for name in ("README", "CHANGELOG", "CONTRIBUTING", "SECURITY")]
PAGES = [*TOP, *sorted(DOCS.rglob("*.md"))]
COMMAND = re.compile(r"(?:^|\$ )(streamlog (?:[a-z-]+ ?)+)", re.MULTILINE)


TEST = re.compile(
    r"\b(?:unit|property|integration|simulation|security|spark|peers)/[\w/]*test_\w+\.py"
)


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


# Links


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    assert [found for link in links_of(page) if (found := problem(link))] == []


def test_a_dead_link_would_be_found(tmp_path: Path) -> None:
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


def test_the_recipes_name_files_that_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    files = set(re.findall(r"`((?:streamlog|tests|docs|deploy|config)/[\w./-]+)`", text))
    assert len(files) > 40
    assert [name for name in sorted(files) if not (ROOT / name).exists()] == []


# Commands


GUIDES = [*TOP, *sorted(DOCS.glob("*.md")), *sorted((DOCS / "tutorials").glob("*.md"))]


@pytest.mark.parametrize("page", GUIDES, ids=name_of)
def test_commands_exist(page: Path) -> None:
    blocks = re.findall(r"^```(?:console|sh)\n(.*?)^```", page.read_text(), re.M | re.S)
    words = {tuple(found.split()) for block in blocks for found in COMMAND.findall(block)}
    assert [command for command in words if not is_known(command[1:])] == []


def is_known(words: tuple[str, ...]) -> bool:
    """The first words are a command's; what follows may be its arguments."""
    command: Any = get_command(app)
    for word in words:
        inner = getattr(command, "commands", None)
        if inner is None:
            return True
        if word not in inner:
            return False
        command = inner[word]
    return getattr(command, "commands", None) is None


def test_an_unknown_command_would_be_found() -> None:
    assert is_known(("cluster", "check"))
    assert is_known(("read", "orders"))
    assert not is_known(("cluster", "chekc"))
    assert not is_known(("cluster",))


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_a_runbook_has_commands_with_options_that_exist(page: Path) -> None:
    found = list(steps(page.read_text()))
    assert found
    for step in found:
        program, *words = shlex.split(step.command)
        if program != "streamlog":
            continue
        command: Any = get_command(app)
        for word in words[: 1 if words[0] == "read" else 2]:
            command = command.commands[word]
        known = {option for param in command.params for option in param.opts}
        assert {word for word in words if word.startswith("--")} <= known, step


def test_every_runbook_is_in_the_list() -> None:
    listed = {link.target for link in links_of(DOCS / "runbooks" / "README.md")}
    assert {page.name for page in pages()} <= listed


def test_every_decision_is_in_the_list_by_its_number_and_title() -> None:
    folder = DOCS / "decisions"
    listed = (folder / "README.md").read_text()
    for page in folder.glob("[0-9]*.md"):
        number, _, title = page.read_text().splitlines()[0].removeprefix("# ").partition(". ")
        assert int(page.name[:3]) == int(number)
        assert f"| {number} | [{title}]({page.name}) |\n" in listed


# What is made out of the code


def test_the_configuration_reference_is_fresh() -> None:
    stale = "run `python -m documentation`"
    assert configuration.PAGE.read_text() == configuration.page(), stale


def test_every_setting_is_there_with_its_default() -> None:
    text = configuration.page()
    assert "| `port` | `9092` | 0 to 65_535 |" in text
    assert '| `sync` | `"commit"` | `commit`, `interval`, `os` |' in text
    assert "| `data_dir` | must be set |" in text


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


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_each_test_that_a_page_names_exists(page: Path) -> None:
    named = TEST.findall(page.read_text())
    assert [name for name in named if not (ROOT / "tests" / name).exists()] == []


# The site


def test_every_page_of_the_navigation_is_there_once() -> None:
    text = (ROOT / "mkdocs.yml").read_text().replace("!!python/name:", "")
    named = list(named_in(yaml.safe_load(text)["nav"]))
    assert len(named) == len(set(named))
    assert [page for page in named if not (DOCS / page).exists()] == []


def test_pages_that_it_does_not_name_come_at_its_end() -> None:
    config = on_config(SimpleNamespace(nav=[{"A": "index.md"}]))
    assert config.nav[0] == {"A": "index.md"}
    assert "runbooks/lost-quorum.md" in config.nav[1]["More"]


def test_every_package_is_in_the_architecture() -> None:
    table = (DOCS / "architecture.md").read_text().partition("## Packages")[2].partition("## ")[0]
    own = [path for path in (ROOT / "streamlog").iterdir() if not path.name.startswith("_")]
    names = {path.stem for path in own if path.is_dir() or path.suffix == ".py"}
    assert {name for name in names if f"`{name}`" not in table} == set()
