"""Each line of docs/arrow.md, and the notebook, run against a real node."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.spark.live_node import TIMEOUT_S, LiveNode

DOCS = Path(__file__).parents[2] / "docs"
COUNT = 60
EXECUTE = """
import sys, nbclient, nbformat
notebook = nbformat.read(sys.argv[1], 4)
nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
print(notebook.cells[-2].outputs[-1]["data"]["text/plain"])
"""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveNode]:
    """Flights from JFK and LGA, by turns; those of UA are late by five minutes, those of AA by one."""
    node = LiveNode(tmp_path_factory.mktemp("node"))
    node.start()
    node.create("flights", subject="flights.>")
    node.create("copy")
    producer = Producer({"bootstrap.servers": node.kafka})
    for number in range(COUNT):
        origin, carrier = ("JFK", "LGA")[number % 2], ("UA", "AA", "AA")[number % 3]
        flight = {"carrier": carrier, "origin": origin, "dep_delay": 5 if carrier == "UA" else 1}
        subject = f"flights.{origin}.{carrier}".encode()
        producer.produce("flights", json.dumps(flight).encode(), headers=[("subject", subject)])
    assert producer.flush(TIMEOUT_S) == 0
    yield node
    node.stop()


def blocks(node: LiveNode, language: str) -> list[str]:
    text = (DOCS / "arrow.md").read_text()
    text = text.replace("127.0.0.1:9092", node.kafka)
    text = text.replace("data/node-1", str(next(node.data_dir.glob("node-*"))))
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def environment(node: LiveNode) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return os.environ | {
        "PATH": path,
        "SERVERS": node.kafka,
        "STREAMLOG_CLIENT_BOOTSTRAP_SERVER": node.kafka,
    }


def run(node: LiveNode, folder: Path, *command: str) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment(node),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def test_the_python_of_the_page_runs(node: LiveNode, tmp_path: Path) -> None:
    program = "\n".join(blocks(node, "python"))
    assert program.count("streamlog.arrow.read(") >= 7
    said = run(node, tmp_path, sys.executable, "-c", program)
    assert re.search(r"flights\.JFK\.AA +│ +20", said), said
    assert f"\n{COUNT // 2}\n{COUNT} 0\n" in said


def test_the_commands_of_the_page_run(node: LiveNode, tmp_path: Path) -> None:
    lines = [
        line.removeprefix("$ ")
        for block in blocks(node, "console")
        for line in block.splitlines()
        if line.startswith("$ streamlog")
    ]
    assert len(lines) >= 6
    for line in lines:
        run(node, tmp_path, "bash", "-o", "pipefail", "-c", line)
    names = {it.name for it in tmp_path.iterdir()}
    assert names == {"flights.parquet", "flights.csv", "flights", "flights.jsonl.gz"}


def test_the_notebook_runs(node: LiveNode, tmp_path: Path) -> None:
    notebook = str(DOCS / "notebooks" / "arrow.ipynb")
    said = run(node, tmp_path, sys.executable, "-c", EXECUTE, notebook)
    rows = [line.split() for line in said.splitlines()]
    assert ["0", "UA", "20", "5.0"] in rows, said
    assert ["1", "AA", "40", "1.0"] in rows, said


def test_the_notebook_has_no_output_in_the_repository() -> None:
    cells = json.loads((DOCS / "notebooks" / "arrow.ipynb").read_text())["cells"]
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)
