"""Links of the documentation: which there are, where they lead, and what the site makes of them.

As a hook of mkdocs it leaves links out of ``docs/`` as plain text, for the site has only its pages,
and lists every page.
"""

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]
DOCS: Final = ROOT / "docs"

_LINK: Final = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
_CODE: Final = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)
_HEADING: Final = re.compile(r"^#{1,6} (.+?)\s*$", re.MULTILINE)


class Link(NamedTuple):
    """One link of a page; ``anchor`` is empty where a whole page is meant."""

    page: Path
    target: str
    anchor: str

    @property
    def path(self) -> Path:
        return (self.page.parent / self.target).resolve() if self.target else self.page.resolve()


def links_of(page: Path) -> Iterator[Link]:
    """Those that lead to files; the web is not asked."""
    text = _CODE.sub(lambda code: "" if code[0].startswith("```") else code[0], page.read_text())
    for match in _LINK.finditer(text):
        target, _, anchor = match[3].partition("#")
        if not re.match(r"[a-z]+:", target):
            yield Link(page, target, anchor)


def anchors_of(page: Path) -> set[str]:
    """Of the headings, as GitHub and mkdocs make them, and of ``<a id=...>``."""
    text = page.read_text()
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    named = set(re.findall(r'<a (?:id|name)="([^"]+)"', text))
    return named | {slug(heading) for heading in _HEADING.findall(prose)}


def slug(heading: str) -> str:
    """Letters, digits, hyphens, underscores; blanks become hyphens."""
    plain = _LINK.sub(lambda link: link[2], heading).replace("`", "").strip().lower()
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


def problem(link: Link) -> str:
    """What is wrong with it; empty if nothing is."""
    if not link.path.exists():
        return f"{link.page}: {link.target} is not there"
    if link.anchor and link.path.suffix == ".md" and link.anchor not in anchors_of(link.path):
        return f"{link.page}: {link.target or link.page.name} has no heading #{link.anchor}"
    return ""


def named_in(nav: Any) -> Iterator[str]:
    """The pages that a navigation names, at whatever depth."""
    if isinstance(nav, str):
        yield nav
    elif nav:
        for part in nav.values() if isinstance(nav, dict) else nav:
            yield from named_in(part)


def on_config(config: Any) -> Any:
    """mkdocs calls it at first: pages that the navigation does not name come at its end, but for
    decisions, which have a list of their own.
    """
    there = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    there = {page for page in there if not re.match(r"decisions/\d", page)}
    more = sorted(there - set(named_in(config.nav)))
    if more:
        config.nav = [*config.nav, {"More": more}]
    return config


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """mkdocs calls it for each page."""
    return without_outer_links(markdown, PurePosixPath(page.file.src_uri))


def without_outer_links(markdown: str, page: PurePosixPath) -> str:
    """Links out of ``docs/`` become their texts."""

    def replaced(match: "re.Match[str]") -> str:
        target = match[3].partition("#")[0]
        if not target or re.match(r"[a-z]+:", target):
            return match[0]
        path = (DOCS / page.parent / target).resolve()
        return match[0] if path.is_relative_to(DOCS) else match[2]

    return _LINK.sub(replaced, markdown)
