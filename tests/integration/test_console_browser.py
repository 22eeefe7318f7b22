"""The console in a real browser, of three real nodes."""

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from streamlog.nats_tools.publisher import Publisher
from tests import browser
from tests.browser import Tab
from tests.http_api import ask
from tools.nodes.node_process import NodeProcess

HOSTILE = '<img src=x onerror="alert(1)"><script>alert(2)</script>'
PHONE = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}

pytestmark = pytest.mark.peers


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    browser.require()
    with browser.chromium() as started:
        yield started


@pytest.fixture
def new_tab(chromium: Any) -> Iterator[Callable[..., Tab]]:
    tabs: list[Tab] = []

    def create(**options: Any) -> Tab:
        tabs.append(Tab(chromium, **options))
        return tabs[-1]

    yield create
    for tab in tabs:
        tab.close()


def publish(
    url: str, subject: str, *payloads: bytes, headers: dict[str, str] | None = None
) -> None:
    async def send() -> None:
        async with Publisher(url) as publisher:
            for payload in payloads:
                await publisher.publish(subject, payload, headers)

    in_thread(lambda: asyncio.run(send()))


def add_stream(cli: Any, options: str) -> None:
    assert in_thread(lambda: cli.run(f"stream add {options}")).code == 0


def in_thread(call: Callable[[], Any]) -> Any:
    """The browser's driver has an event loop in this one."""
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(call).result()


def commit(kafka: str, group: str, stream: str) -> None:
    settings = {"bootstrap.servers": kafka, "group.id": group, "enable.auto.commit": False}
    consumer = Consumer(settings)
    try:
        consumer.commit(offsets=[TopicPartition(stream, 0, 0)], asynchronous=False)
    finally:
        consumer.close()


def http_of(trio: Any, number: int) -> str:
    return f"{trio.addresses['nodes'][number]['http']}/"


def text_of(page: Any, selector: str) -> str:
    return str(page.inner_text(selector))


def eventually(page: Any, selector: str, text: str) -> None:
    """The page's policy lets no predicate of the driver's run in it: it is looked at from here."""
    deadline = time.monotonic() + browser.WAIT_MS / 1000
    while text not in (page.text_content(selector) or ""):
        assert time.monotonic() < deadline, page.text_content(selector)
        page.wait_for_timeout(10)


def test_it_loads_and_live_values_move(trio: Any, cli: Any, new_tab: Callable[..., Tab]) -> None:
    add_stream(cli, "moving --replicas 3 --partitions 2")
    tab = new_tab()
    page = tab.open(http_of(trio, 0) + "?view=partitions&filter=moving")
    eventually(page, "#verdict", "All is well")
    eventually(page, "#rows", "moving/1")
    row = "#rows tr:first-child"
    assert text_of(page, f"{row} td[data-name='High watermark']") == "0"
    publish(trio.nats, "moving", b"one", b"two", b"three")
    eventually(page, f"{row} td[data-name='High watermark']", "3")
    page.click("#tabs a[href='/?view=streams']")
    eventually(page, "#list-title", "Streams")
    assert page.evaluate("document.activeElement.id") == "list-title", "the new view is read out"
    page.keyboard.press("/")
    page.keyboard.type("movin")
    page.wait_for_url("**/?view=streams&filter=movin")
    eventually(page, "#range", "1 to 1 of 1")
    assert page.evaluate("document.activeElement.id") == "filter"
    page.click("#rows a:has-text('moving')")
    eventually(page, "#stream-figures", "Records here")
    eventually(page, "#rows", "moving/1")
    page.go_back()
    eventually(page, "#range", "1 to 1 of 1")
    page.click("#tabs a[href='/?view=events']")
    eventually(page, "#rows", "stream moving was created")
    assert tab.problems == []
    own = http_of(trio, 0)
    assert all(url.startswith(own) for url in tab.asked), "nothing comes from elsewhere"


def test_hostile_names_and_payloads_do_not_run(
    trio: Any, cli: Any, new_tab: Callable[..., Tab]
) -> None:
    add_stream(cli, "hostile --subject hostile.>")
    publish(trio.nats, "hostile.<script>alert(3)</script>", HOSTILE.encode(), b"\xff\xfe",
            headers={"X-B": HOSTILE, "Streamlog-Key": HOSTILE})  # fmt: skip
    tab = new_tab()
    page = tab.open(http_of(trio, 1) + "?view=messages&stream=hostile")
    eventually(page, "#records", HOSTILE)
    page.click("#follow")
    eventually(page, "#messages-state", "Following hostile/0 up to 2")
    eventually(page, "#records", HOSTILE)
    assert page.query_selector_all("#records img, #records script, #records b") == []
    page.goto(
        http_of(trio, 1) + "?view=streams&filter=" + "%3Cimg%20src%3Dx%20onerror%3Dalert(4)%3E"
    )
    eventually(page, "#none", "Nothing here")
    page.goto(http_of(trio, 1) + "?view=messages&stream=" + "%3Cscript%3Ealert(5)%3C%2Fscript%3E")
    eventually(page, "#messages-state", "there is no stream")
    refused = page.evaluate("""() => {
        const script = document.createElement("script");
        try { script.textContent = "window.ran = 1"; } catch { return "refused"; }
        document.body.append(script);
        return window.ran ?? "refused";
    }""")
    assert refused == "refused", "the policy holds even where the page had a hole"
    told = [it for it in tab.problems if "404" not in it and "Content Security" not in it
            and "TrustedScript" not in it]  # fmt: skip
    assert told == []


def test_messages_are_searched_and_every_search_has_an_address(
    trio: Any, cli: Any, new_tab: Callable[..., Tab]
) -> None:
    add_stream(cli, "searched --subject searched.*")
    orders = [{"id": number, "buyer": {"vip": number % 3 == 0}} for number in range(100)]
    publish(trio.nats, "searched.eu", *(json.dumps(it).encode() for it in orders))
    publish(trio.nats, "searched.us", json.dumps({"pad": "x" * 9_000, "id": 7}).encode())
    tab = new_tab()
    page = tab.open(http_of(trio, 2) + "?view=streams&filter=searched")
    eventually(page, "#rows", "searched")
    page.click("#rows td a:has-text('messages')")
    eventually(page, "#messages-state", "50 messages, the newest first")
    page.click("#more summary")
    page.fill("[name=path]", "$.buyer.vip = true")
    page.select_option("[name=count]", "10")
    page.keyboard.press("Tab")
    page.click("#messages-form [type=submit]")
    eventually(page, "#messages-state", "10 messages")
    eventually(page, "#records li:first-child .place", "0/99")
    page.click("#go-on")
    eventually(page, "#records li:first-child .place", "0/69")
    second = page.url
    page.go_back()
    eventually(page, "#records li:first-child .place", "0/99")
    other = new_tab().open(second)
    eventually(other, "#records li:first-child .place", "0/69")
    assert other.input_value("[name=path]") == "$.buyer.vip = true"
    page.goto(http_of(trio, 0) + "?view=messages&stream=searched&subject=searched.us")
    eventually(page, "#messages-state", "1 message")
    page.click("#records .expand")
    eventually(page, "#records pre", '"id": 7')
    assert page.get_attribute("#records .expand", "aria-expanded") == "true"
    page.fill("#m-from", "yesterday")
    page.click("#messages-form [type=submit]")
    eventually(page, "#messages-state", "from: end, start, an offset")
    assert [it for it in tab.problems if "400" not in it] == []


def test_it_is_read_only_unless_changes_are_enabled(
    trio: Any, cli: Any, new_tab: Callable[..., Tab]
) -> None:
    add_stream(cli, "kept")
    page = new_tab().open(http_of(trio, 0) + "?view=manage&ask=placement.moves")
    eventually(page, "#manage-state", "Read-only: http.console_writes is off")
    eventually(page, "#answer", "None.")
    labels = page.eval_on_selector_all("#operations button", "all => all.map((it) => it.innerText)")
    assert not [it for it in labels if not it.startswith(("Get", "Describe", "Read"))]
    page.goto(http_of(trio, 0) + "?view=stream&stream=kept")
    eventually(page, "#rows", "kept/0")
    assert page.query_selector_all("#stream-acts button, #rows button, #list-acts button") == []
    page.goto(http_of(trio, 0) + "?view=messages&stream=kept")
    eventually(page, "#messages-state", "0 messages")
    assert page.query_selector_all("#messages-acts button") == []


@pytest.mark.parametrize("first", ["the operations", "the state"])
def test_the_operations_and_the_state_of_the_node_come_in_either_order(
    trio: Any, new_tab: Callable[..., Tab], first: str
) -> None:
    held: list[Any] = []

    def hold(route: Any) -> None:
        held.append(route)

    page = new_tab().page
    page.route("**/api/live*" if first == "the operations" else "**/openapi.json", hold)
    page.goto(http_of(trio, 0) + "?view=manage", wait_until="domcontentloaded")
    if first == "the operations":
        page.wait_for_selector("#operations section")
    else:
        page.wait_for_selector("body[data-ready]")
    assert text_of(page, "#manage-state") == "", "nothing is said of what is not known yet"
    for route in held:
        route.continue_()
    eventually(page, "#manage-state", "Read-only: http.console_writes is off")
    assert page.query_selector_all("#operations a") != []


@pytest.fixture
def changeable(tmp_path: Path, plain_nats: Any) -> Iterator[NodeProcess]:
    http = {"console_writes": True, "api_writes": True}
    node = NodeProcess.alone(tmp_path, plain_nats.url, settings={"http": http})
    node.start()
    yield node
    assert node.stop() == 0


def test_changes_are_made_by_forms(changeable: NodeProcess, new_tab: Callable[..., Tab]) -> None:
    base = f"http://127.0.0.1:{changeable.http_port}/"
    tab = new_tab()
    page = tab.open(f"{base}?view=streams")

    def field(label: str) -> Any:
        named = page.locator("#act-fields label", has=page.locator(f"span:text-is('{label}')"))
        return named.locator("input, select, textarea").first

    def act(button: str, said: str, **fields: str) -> None:
        page.click(button)
        for name, value in fields.items():
            field(name.replace("_", " ").replace("REQUIRED", "*")).fill(value)
        page.click("#act-go")
        eventually(page, "#act-state", said)
        page.click("#act-close")

    act("#list-acts button", "Fill in what is marked")
    act("#list-acts button", "Done.", name_REQUIRED="orders", subjects="orders.>, more")
    page.click("#rows a:has-text('orders')")
    act("#stream-acts button:text-is('Change settings')", "Done.", description="of shops")
    page.click("#stream summary")
    eventually(page, "#stream-config", "of shops")
    act("#stream-acts button:text-is('Change settings')", "partitions", partitions="0")
    confirm = "Type_the_name_again_to_confirm"
    act("#stream-acts button:text-is('Purge')", "is another one", **{confirm: "order"})
    act("#stream-acts button:text-is('Purge')", "Done.", **{confirm: "orders"})
    act("#rows button:text-is('Elect a leader')", "Done.")
    act("#rows button:text-is('Move')", "node 7", replicas_REQUIRED="7")
    page.click("#tabs a[href='/?view=manage']")
    act(
        "#operations button:text-is('Set the password of a user')", "Done.",
        name_REQUIRED="ann", password_REQUIRED="correct horse",
    )  # fmt: skip
    page.click("#operations a:has-text('List the users')")
    eventually(page, "#answer", "ann")
    assert "horse" not in page.content()
    in_thread(lambda: commit(changeable.kafka, "billing", "orders"))
    page.goto(f"{base}?view=groups")
    page.click("#rows button:text-is('Reset offsets')")
    field("to latest").check()
    page.click("#act-go")
    eventually(page, "#act-state", "Done.")
    eventually(page, "#act-answer", "new offset")
    page.click("#act-close")
    page.click("#rows a:has-text('billing')")
    eventually(page, "#answer", "orders")
    page.goto(f"{base}?view=stream&stream=orders")
    act("#stream-acts button:text-is('Delete')", "Done.", **{confirm: "orders"})
    eventually(page, "#stream-links", "There is no stream orders")
    assert [it for it in tab.problems if "status of 4" not in it] == []


def test_a_message_is_published_by_keyboard_and_found(
    changeable: NodeProcess, new_tab: Callable[..., Tab]
) -> None:
    settings = {"name": "orders", "subjects": ["orders.*"]}
    assert ask(changeable, "POST", "/streams", {"config": settings}).status == 200
    base = f"http://127.0.0.1:{changeable.http_port}/"
    tab = new_tab()
    page = tab.open(f"{base}?view=messages&stream=orders")
    eventually(page, "#messages-acts", "Publish a message")
    page.focus("#messages-acts button")
    page.keyboard.press("Enter")
    page.locator("#act-fields label", has_text="payload").locator("textarea").fill('{"total": 7}')
    page.locator("#act-fields label", has_text="subject").locator("input").fill("other")
    page.focus("#act-go")
    page.keyboard.press("Enter")
    eventually(page, "#act-state", "has no subject that matches it")
    page.locator("#act-fields label", has_text="subject").locator("input").fill("orders.new")
    page.focus("#act-go")
    page.keyboard.press("Enter")
    eventually(page, "#act-state", "Done.")
    page.focus("#act-answer a")
    page.keyboard.press("Enter")
    eventually(page, "#records", '"total": 7')
    eventually(page, "#records", "orders.new")
    assert not page.query_selector("dialog[open]")
    assert [it for it in tab.problems if "status of 400" not in it] == []


@pytest.mark.parametrize("options", [{}, {**PHONE, "color_scheme": "dark"}], ids=["desk", "phone"])
def test_an_audit_of_forms_finds_nothing(
    changeable: NodeProcess, new_tab: Callable[..., Tab], options: dict[str, Any]
) -> None:
    axe = pytest.importorskip("axe_playwright_python.base").AXE_FILE_PATH.read_text()
    page = new_tab(bypass_csp=True, **options).open(
        f"http://127.0.0.1:{changeable.http_port}/?view=manage"
    )
    page.evaluate(axe)
    for button in ("Create a stream", "Add access rules", "Set the password of a user"):
        page.click(f"#operations button:text-is('{button}')")
        assert page.evaluate(AUDIT) == [], button
        wide = page.evaluate("document.querySelector('#act').scrollWidth - innerWidth")
        assert wide <= 0, "nothing has to be scrolled sideways"
        page.keyboard.press("Escape")
        assert page.evaluate("document.activeElement.innerText") == button, "back where one was"


def test_by_keyboard_alone(trio: Any, new_tab: Callable[..., Tab]) -> None:
    page = new_tab().open(http_of(trio, 0))
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    names = page.evaluate("""() => [...document.querySelectorAll("input, select, button")]
        .filter((it) => !(it.labels?.length || it.innerText.trim() || it.ariaLabel))
        .map((it) => it.id)""")
    assert names == [], "each has a label"
    page.focus("#pause")
    page.keyboard.press("Enter")
    assert page.get_attribute("#pause", "aria-pressed") == "true"
    eventually(page, "#verdict", "Paused")
    page.keyboard.press("Enter")
    eventually(page, "#verdict", "well")
    landmarks = page.evaluate(
        "['header', 'main', 'footer', 'h1'].map((it) => document.querySelectorAll(it).length)"
    )
    assert landmarks == [1, 1, 1, 1]
    assert page.get_attribute("html", "lang") == "en"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read(trio: Any, new_tab: Callable[..., Tab], scheme: str) -> None:
    """WCAG 2.2, 1.4.3: 4.5 to 1."""
    page = new_tab(color_scheme=scheme).open(http_of(trio, 0))
    for view in ("overview", "streams", "messages"):
        page.click(f"#tabs a[href='/?view={view}']")
        eventually(page, "#verdict", "well")
        assert page.evaluate(CONTRASTS) == [], view


@pytest.mark.parametrize("options", [{}, {**PHONE, "color_scheme": "dark"}], ids=["desk", "phone"])
def test_an_audit_of_accessibility_finds_nothing(
    trio: Any, cli: Any, new_tab: Callable[..., Tab], options: dict[str, Any]
) -> None:
    """By axe-core: WCAG 2.2 A and AA, and what its authors recommend beyond them."""
    axe = pytest.importorskip("axe_playwright_python.base").AXE_FILE_PATH.read_text()
    add_stream(cli, "audited")
    publish(trio.nats, "audited", b"one", headers={"X-A": "b"})
    page = new_tab(bypass_csp=True, **options).open(http_of(trio, 0))
    page.evaluate(axe)
    for where, shown in (
        ("overview", ""), ("streams", "audited"), ("partitions", "audited/0"), ("groups", ""),
        ("events", "was created"), ("stream&stream=audited", "audited/0"),
        ("messages&stream=audited&key=&count=10", "one"), ("manage&ask=cluster.describe", ""),
    ):  # fmt: skip
        page.evaluate(VISIT, f"/?view={where}")
        if shown:
            eventually(page, "#records" if "messages" in where else "#rows", shown)
        found = page.evaluate(AUDIT)
        assert found == [], where


@pytest.mark.parametrize(
    "where", ["overview", "streams", "partitions", "groups", "events", "messages"]
)
def test_it_fits_a_phone(trio: Any, new_tab: Callable[..., Tab], where: str) -> None:
    page = new_tab(**PHONE).open(http_of(trio, 0) + f"?view={where}")
    eventually(page, "#verdict", "well")
    wide = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
    assert wide <= 0, "nothing has to be scrolled sideways"


@pytest.mark.parametrize("of", ["a follower", "the controller"])
def test_a_killed_node_shows_by_itself(
    new_dev: Callable[..., Any], new_tab: Callable[..., Tab], of: str
) -> None:
    trio = new_dev("--nodes", "3")
    trio.start()
    tab = new_tab()
    page = tab.open(http_of(trio, 0))
    eventually(page, "#verdict", "All is well")
    controller = int(
        page.evaluate("fetch('/api/status').then((it) => it.json())")["cluster"]["controller"]
    )
    victim = next(n for n in (1, 2, 3) if (n == controller) == (of == "the controller"))
    watched = next(n for n in (1, 2, 3) if n != victim)
    page = tab.open(http_of(trio, watched - 1))
    eventually(page, "#verdict", "All is well")
    os.kill(int(trio.addresses["nodes"][victim - 1]["pid"]), signal.SIGKILL)
    eventually(page, "#findings", f"Node {victim} at")
    assert "bad" in (page.get_attribute("#verdict", "class") or "")
    told = page.evaluate("fetch('/api/events').then((it) => it.json())")
    assert any(f"node {victim} is gone" in row["text"] for row in told["rows"])
    finding = f"#findings li:has-text('Node {victim} at')"
    page.locator(f"{finding} summary").press(
        "Enter"
    )  # a code is explained to who has no mouse, too
    page.wait_for_selector(f"{finding} details[open] p:has-text('streamlog explain SL-')")


VISIT = """(address) => {
  const link = document.createElement("a");
  link.href = address;
  link.setAttribute("href", address);
  document.querySelector("footer").append(link);
  link.click();
  link.remove();
}"""

AUDIT = """async () => {
  const tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];
  const { violations } = await axe.run(document, { runOnly: { type: "tag", values: tags } });
  return violations.map((it) => `${it.id}: ${it.nodes.map((node) => node.html).slice(0, 3)}`);
}"""

CONTRASTS = """() => {
  const bright = (rgb) => {
    const [r, g, b] = rgb.map((it) => it / 255).map((it) =>
      it <= 0.04045 ? it / 12.92 : ((it + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const numbers = (text) => text.match(/[\\d.]+/g).map(Number);
  const behind = (it) => {
    for (let at = it; at; at = at.parentElement) {
      const found = numbers(getComputedStyle(at).backgroundColor);
      if (found.length === 3 || found[3] > 0) return found.slice(0, 3);
    }
    return [255, 255, 255];
  };
  document.getAnimations().forEach((it) => it.finish());
  const poor = [];
  for (const it of document.querySelectorAll("body *")) {
    const own = [...it.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!own || !it.checkVisibility() || it.disabled || it.closest("noscript")) continue;
    const a = bright(numbers(getComputedStyle(it).color).slice(0, 3));
    const b = bright(behind(it));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) poor.push(`${it.innerText}: ${ratio.toFixed(2)}`);
  }
  return poor;
}"""


def test_open_transaction_is_shown_with_what_it_holds_up_and_is_aborted(
    changeable: NodeProcess, new_tab: Callable[..., Tab]
) -> None:
    assert ask(changeable, "POST", "/streams", {"config": {"name": "orders"}}).status == 200
    producer = Producer(
        {"bootstrap.servers": changeable.kafka, "transactional.id": HOSTILE, "linger.ms": 0}
    )

    def begin() -> None:
        producer.init_transactions(browser.WAIT_MS / 1000)
        producer.begin_transaction()
        for _ in range(3):
            producer.produce("orders", b"x", partition=0)
        assert producer.flush(browser.WAIT_MS / 1000) == 0

    in_thread(begin)
    tab = new_tab()
    page = tab.open(f"http://127.0.0.1:{changeable.http_port}/?view=transactions")
    eventually(page, "#rows", "Ongoing")
    eventually(page, "#rows", "orders/0: 3")
    assert text_of(page, "#rows td[data-name='Records held up']") == "3"
    assert text_of(page, "#rows th") == HOSTILE
    page.click("#rows button:has-text('Abort')")
    page.click("#act-go")
    eventually(page, "#act-state", "Done")
    page.click("#act-close")
    eventually(page, "#rows", "CompleteAbort")
    assert text_of(page, "#rows td[data-name='Records held up']") == "\N{EN DASH}"
    assert tab.problems == []
