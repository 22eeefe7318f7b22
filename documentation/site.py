"""What the site makes of pages that are written to be read at GitHub, too. A hook of mkdocs.

Prompts become such that the highlighter knows them, links that are named after a file are named
after its page, and diagrams are drawn by mermaid, if `make docs` has fetched it: nothing is asked
of other sites. Without it their source is shown. The reference of the commands is made of them.
"""

import re
import sys
from pathlib import Path
from typing import Any, Final

DOCS: Final = Path(__file__).parents[1] / "docs"
MERMAID: Final = Path(__file__).parents[1] / "build" / "mermaid.min.js"
MERMAID_URI: Final = "assets/javascripts/mermaid.min.js"

_CONSOLE: Final = re.compile(r"^```console\n.*?^```$", re.MULTILINE | re.DOTALL)
_OF_A_NODE: Final = re.compile(r"^(node-\d)\$ ", re.MULTILINE)
_NAMED_AFTER_FILE: Final = re.compile(r"\[`?([\w./-]+\.md)`?\]\(((?:[\w./-]+/)?\1)(#[^()\s]*)?\)")
_TITLE: Final = re.compile(r"^# (.+)$", re.MULTILINE)


def on_files(files: Any, *, config: Any) -> Any:
    """mkdocs calls it once: the library that draws is one of the site's files."""
    from mkdocs.structure.files import File

    sys.path.insert(0, str(DOCS.parent))  # a hook is loaded as a file, not out of a package
    if MERMAID.exists():
        files.append(File.generated(config, MERMAID_URI, abs_src_path=str(MERMAID)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """mkdocs calls it for each page; one without sections gives its contents' place to its text."""
    if "\n## " not in markdown:
        page.meta.setdefault("hide", ["toc"])
    from documentation.commands import with_commands

    text = with_titles(
        with_known_prompts(with_commands(markdown)), (DOCS / page.file.src_uri).parent
    )
    return text if MERMAID.exists() else text.replace("\n```mermaid\n", "\n```text\n")


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Only pages with diagrams load it; the theme takes the one that is there."""
    from mkdocs.utils import get_relative_url

    if 'class="mermaid"' not in output:
        return output
    address = get_relative_url(MERMAID_URI, page.url)
    return output.replace("</head>", f'<script src="{address}"></script></head>', 1)


def with_known_prompts(markdown: str) -> str:
    """``node-2$`` is none to the highlighter, which would take the command for an answer."""
    return _CONSOLE.sub(lambda block: _OF_A_NODE.sub(r"\1:~$ ", block[0]), markdown)


def with_titles(markdown: str, folder: Path) -> str:
    """``[nats.md](nats.md)`` is fine beside a file, and odd on a site."""

    def titled(match: "re.Match[str]") -> str:
        page = folder / match[2]
        title = _TITLE.search(page.read_text()) if page.exists() else None
        return f"[{title[1]}]({match[2]}{match[3] or ''})" if title else match[0]

    return _NAMED_AFTER_FILE.sub(titled, markdown)
