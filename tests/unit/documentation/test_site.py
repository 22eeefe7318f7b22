"""The documentation's site: what becomes of its pages, that it builds, what a browser shows."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from documentation.links import DOCS, ROOT
from documentation.site import MERMAID, with_known_prompts, with_titles
from tests import browser


def test_prompts_of_nodes_become_such_that_are_known() -> None:
    page = "node-1$ x\n```console\n$ a\nnode-1$ b\nit says node-2$ c\n```\nnode-3$ x\n"
    assert with_known_prompts(page) == page.replace("\nnode-1$ b", "\nnode-1:~$ b")


@pytest.mark.parametrize(
    ("link", "text"),
    [
        ("[nats.md](nats.md)", "[NATS](nats.md)"),
        ("[`nats.md`](nats.md#publishing)", "[NATS](nats.md#publishing)"),
        ("[nats.md](../nats.md)", "[nats.md](../nats.md)"),
        ("[of NATS](nats.md)", "[of NATS](nats.md)"),
        (
            "[lost-quorum.md](runbooks/lost-quorum.md)",
            "[The quorum is lost](runbooks/lost-quorum.md)",
        ),
    ],
)
def test_a_link_is_named_after_its_page(link: str, text: str) -> None:
    title = (DOCS / "nats.md").read_text().splitlines()[0].removeprefix("# ")
    assert with_titles(link, DOCS) == text.replace("[NATS]", f"[{title}]")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("material")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


@pytest.fixture
def tab() -> Iterator[browser.Tab]:
    browser.require()
    with browser.chromium() as opened:
        tab = browser.Tab(opened, viewport={"width": 390, "height": 844}, is_mobile=True)
        yield tab
        tab.close()


@pytest.mark.slow
def test_it_builds(site: Path) -> None:
    assert (site / "runbooks" / "lost-quorum.html").exists()


@pytest.mark.slow
def test_every_page_is_shown_whole_on_a_phone_without_the_internet(
    site: Path, tab: browser.Tab
) -> None:
    pages = sorted(set(site.rglob("*.html")) - {site / "404.html"})  # that one is a server's
    assert len(pages) > 30
    for page in pages:
        tab.page.goto(page.as_uri())
        for diagram in tab.page.locator("div.mermaid").all():
            assert MERMAID.exists()
            diagram.wait_for(state="visible")
        wide, screen = tab.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert wide <= screen, page
    assert [url for url in tab.asked if not url.startswith(("file:", "data:"))] == []
    assert tab.problems == []
