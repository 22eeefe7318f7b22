"""``python -m documentation --check``: what is wrong with the pages. A line for each problem.

A check is a generator in ``CHECKS``. No browser and no server is needed: links, names of the code, commands and their
options, files, tests, figures, and the pages that are made out of the code.
"""

import re
import shlex
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import yaml
from typer.main import get_command

from documentation import (
    apis,
    code_names,
    codes,
    configuration,
    http_api,
    links,
    node_file,
    stream_settings,
)
from documentation.links import DOCS, ROOT, links_of, named_in
from documentation.runbooks import runbooks, steps
from streamlog.cli.program import app

TOP: Final = [ROOT / f"{name}.md" for name in ("README", "CHANGELOG", "CONTRIBUTING", "SECURITY")]
PAGES: Final = [*TOP, *sorted(DOCS.rglob("*.md"))]
GUIDES: Final = [*TOP, *sorted(DOCS.glob("*.md")), *sorted((DOCS / "tutorials").glob("*.md"))]

_BLOCK: Final = re.compile(r"^```(?:console|sh)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_COMMAND: Final = re.compile(r"(?:^|\$ )(streamlog (?:[a-z-]+ ?)+)", re.MULTILINE)
_TEST: Final = re.compile(
    r"\b(?:unit|property|integration|simulation|security|spark|peers)/[\w/]*test_\w+\.py"
)
_FIGURE: Final = re.compile(r"\d[\d,.]*(?: (?:records|lookups|requests)/s| ms| MB/s| s\b| % of)")

Problems = Iterator[str]
Check = Callable[[], Problems]


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


# Links and lists


def links_lead_somewhere() -> Problems:
    for page in PAGES:
        yield from filter(None, map(links.problem, links_of(page)))


def runbooks_are_listed() -> Problems:
    listed = {link.target for link in links_of(DOCS / "runbooks" / "README.md")}
    for page in runbooks():
        if page.name not in listed:
            yield f"docs/runbooks/README.md: add {page.name}"


def decisions_are_listed() -> Problems:
    folder = DOCS / "decisions"
    listed = (folder / "README.md").read_text()
    for page in sorted(folder.glob("[0-9]*.md")):
        number, _, title = page.read_text().splitlines()[0].removeprefix("# ").partition(". ")
        if int(page.name[:3]) != int(number):
            yield f"{name_of(page)}: its title has the number {number}"
        if f"| {number} | [{title}]({page.name}) |\n" not in listed:
            yield f"docs/decisions/README.md: add {number}, {title!r}"


def navigation_names_each_page_once() -> Problems:
    text = (ROOT / "mkdocs.yml").read_text().replace("!!python/name:", "")
    named = list(named_in(yaml.safe_load(text)["nav"]))
    for page in sorted(set(named)):
        if named.count(page) > 1:
            yield f"mkdocs.yml: {page} is named twice"
        if not (DOCS / page).exists():
            yield f"mkdocs.yml: {page} does not exist"


# Names of the code


def named_functions_exist() -> Problems:
    for page in ("glossary.md", "walks.md"):
        named = list(code_names.code_names((DOCS / page).read_text()))
        if len(named) < 25:
            yield f"docs/{page}: only {len(named)} names were found: does this check still read its tables?"
        for problem in filter(None, map(code_names.problem, named)):
            yield f"docs/{page}: {problem}"


def walks_are_counted() -> Problems:
    for walk in (DOCS / "walks.md").read_text().split("\n## ")[1:]:
        told = re.search(r"^(\d+) functions in (\d+) files\.$", walk, re.MULTILINE)
        named = set(code_names.code_names(walk))
        counted = f"{len(named)} functions in {len({name.path for name in named})} files."
        if told is None or told[0] != counted:
            yield f"docs/walks.md: {walk.splitlines()[0]}: write {counted!r}"


def recipes_name_files_that_exist() -> Problems:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    for name in sorted(
        set(re.findall(r"`((?:streamlog|tests|docs|deploy|config)/[\w./-]+)`", text))
    ):
        if not (ROOT / name).exists():
            yield f"CONTRIBUTING.md: {name} does not exist"


def named_tests_exist() -> Problems:
    for page in PAGES:
        for name in _TEST.findall(page.read_text()):
            if not (ROOT / "tests" / name).exists():
                yield f"{name_of(page)}: tests/{name} does not exist"


def packages_are_in_the_architecture() -> Problems:
    table = (DOCS / "architecture.md").read_text().partition("## Packages")[2].partition("## ")[0]
    own = [path for path in (ROOT / "streamlog").iterdir() if not path.name.startswith("_")]
    for name in sorted({path.stem for path in own if path.is_dir() or path.suffix == ".py"}):
        if f"`{name}`" not in table:
            yield f"docs/architecture.md: add {name} to the table of packages"


# Commands


def commands_exist() -> Problems:
    for page in GUIDES:
        words = {
            tuple(found.split())
            for block in _BLOCK.findall(page.read_text())
            for found in _COMMAND.findall(block)
        }
        for command in sorted(words):
            if not is_command(command[1:]):
                yield f"{name_of(page)}: there is no command {' '.join(command)!r}"


def is_command(words: tuple[str, ...]) -> bool:
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


def options_of_runbooks_exist() -> Problems:
    for page in runbooks():
        yield from (f"{name_of(page)}: {problem}" for problem in unknown_options(page.read_text()))


def unknown_options(text: str) -> Problems:
    found = list(steps(text))
    if not found:
        yield "it has no command"
    for step in found:
        program, *words = shlex.split(step.command)
        if program != "streamlog":
            continue
        command: Any = get_command(app)
        for word in words:
            if not hasattr(command, "commands"):
                break
            command = command.commands.get(word)
        if command is None:
            yield f"there is no command {step.command!r}"
            continue
        known = {option for param in command.params for option in param.opts}
        for word in words:
            if word.startswith("--") and word not in known:
                yield f"{step.command!r} has no option {word}"


# What is made out of something else


def generated_pages_are_fresh() -> Problems:
    for made in (apis, codes, configuration, http_api, node_file, stream_settings):
        if made.PAGE.read_text() != made.page():
            yield f"{name_of(made.PAGE)}: run `python -m documentation`"


def figures_were_measured() -> Problems:
    """``docs/comparison.md`` quotes ``benchmarks/README.md``, and nothing else."""
    text = (DOCS / "comparison.md").read_text()
    quoted = (
        text.partition("<!-- figures:")[2].partition("<!-- end of figures -->")[0].replace("**", "")
    )
    figures = _FIGURE.findall(quoted)
    if len(figures) < 25:
        yield f"docs/comparison.md: only {len(figures)} figures were found: does this check still read its tables?"
    measured = set(_FIGURE.findall((ROOT / "benchmarks" / "README.md").read_text()))
    for figure in sorted(set(figures) - measured):
        yield f"docs/comparison.md: {figure!r} is not in benchmarks/README.md"


def comparison_says_where_others_are_better() -> Problems:
    rows = re.findall(
        r"^\| .* \| (.*) \| (.*) \|$", (DOCS / "comparison.md").read_text(), re.MULTILINE
    )
    better = sum(theirs.startswith("**") for _, theirs in rows)
    if better < 5:
        yield f"docs/comparison.md: only {better} rows say that the other one is better"


def versions_of_python_agree() -> Problems:
    """Wheels, classifiers and the guide to a release name the same versions."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    classifiers = "\n".join(project["project"]["classifiers"])
    versions = re.findall(r"Python :: (3\.\d+)", classifiers)
    if project["tool"]["cibuildwheel"]["build"] != [
        f"cp{it.replace('.', '')}-*" for it in versions
    ]:
        yield f"pyproject.toml: cibuildwheel does not build for {', '.join(versions)}"
    if project["project"]["requires-python"] != f">={versions[0]}":
        yield f"pyproject.toml: requires-python is not >={versions[0]}"
    guide = " ".join((DOCS / "releasing.md").read_text().split())
    if f"CPython {versions[0]} to {versions[-1]}" not in guide:
        yield f"docs/releasing.md: does not say CPython {versions[0]} to {versions[-1]}"


CHECKS: Final[tuple[Check, ...]] = (
    links_lead_somewhere,
    runbooks_are_listed,
    decisions_are_listed,
    navigation_names_each_page_once,
    named_functions_exist,
    walks_are_counted,
    recipes_name_files_that_exist,
    named_tests_exist,
    packages_are_in_the_architecture,
    commands_exist,
    options_of_runbooks_exist,
    generated_pages_are_fresh,
    figures_were_measured,
    comparison_says_where_others_are_better,
    versions_of_python_agree,
)
