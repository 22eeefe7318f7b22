"""The page that readers see, and the folders of clients that it is made of."""

from pathlib import Path

from compatibility import results, table
from compatibility.checks.catalogue import CHECKS, OF_ONE_CLIENT
from compatibility.outcome import Outcome
from compatibility.peer import Peer, peers
from compatibility.port import checks as port_checks
from compatibility.port import page
from compatibility.registries import REGISTRIES
from compatibility.results import Row

ROWS = {
    "a": Row("1", {"assign": Outcome("pass"), "group": Outcome("fail", "lost 1")}),
    "b": Row("2", {"assign": Outcome("not offered", "no"), "dump": Outcome("pass")}),
}
PEERS = [Peer(name, name.upper(), Path(), "pip", (), 1) for name in ("a", "b", "c")]


def test_a_row_for_each_client_that_ran_and_a_line_for_each_reason() -> None:
    lines = list(table.markdown(PEERS, ROWS))
    rows = [line for line in lines if line.startswith(("| A", "| B", "| C"))]
    assert [row.split(" | ")[:3] for row in rows] == [
        ["| A 1", "✔", "✘ <sup>1</sup>"],
        ["| B 2", "\N{EN DASH} <sup>2</sup>", " "],
    ]
    assert "1. A: lost 1" in lines
    assert "2. B: no" in lines
    assert lines[-1] == "Segment files, read by B 2: ✔"


def test_only_what_is_between_the_marks_is_replaced(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{table.BEGIN}\nold\n{table.END}\nafter\n")
    table.write(PEERS, ROWS, page)
    first = page.read_text()
    table.write(PEERS, ROWS, page)
    assert page.read_text() == first
    assert first.startswith(f"before\n{table.BEGIN}\n\n| client |")
    assert first.endswith(f"✔\n\n{table.END}\nafter\n")


def test_results_stay_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    results.write(ROWS, path)
    assert results.read(path) == ROWS
    assert results.read(tmp_path / "none") == {}


def test_every_client_says_where_its_packages_come_from() -> None:
    everybody = peers()
    assert len({peer.name for peer in everybody}) == len(everybody)
    assert [peer.place for peer in everybody] == list(range(1, len(everybody) + 1))
    assert {peer.registry for peer in everybody} <= REGISTRIES.keys()
    assert all((peer.folder / name).exists() for peer in everybody for name in peer.without)


def test_the_page_is_that_of_the_results() -> None:
    written = table.PAGE.read_text()
    assert "\n".join(table.markdown(peers(), results.read())) in written


def test_results_are_of_checks_and_clients_that_there_are() -> None:
    names = {check.name for check in CHECKS}
    assert set(OF_ONE_CLIENT) <= names
    rows = results.read()
    assert rows.keys() == {peer.name for peer in peers()}
    assert all(row.cells.keys() == names for row in rows.values())


def test_the_section_of_the_port_is_that_of_its_results() -> None:
    everybody, rows = peers("nats"), results.read(page.RESULTS)
    assert [peer.place for peer in everybody] == list(range(1, len(everybody) + 1))
    assert "\n".join(page.markdown(everybody, rows)) in table.PAGE.read_text()
    assert rows.keys() == {peer.name for peer in everybody}
    columns = {check.name for check in port_checks.CHECKS}
    assert all(row.cells.keys() == columns for row in rows.values())
