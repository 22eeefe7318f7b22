"""Everybody who can be asked what is wrong with a cluster, asked at one time: the same answers?

``/healthz``, ``/readyz``, the console, the metrics, the log, ``doctor``, ``cluster check``,
``cluster nodes``, and the alerts that we ship, evaluated by a Prometheus where there is one.
"""

import json
import os
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

import yaml

from tools.nodes.cluster import Cluster
from tools.nodes.node_process import NodeProcess
from tools.nodes.ports import free_port
from tools.nodes.server_process import program, wait_until

PROMETHEUS: Final = shutil.which("prometheus")
DEPLOY: Final = Path(__file__).parents[2] / "deploy"
BY_THE_WAY: Final = frozenset(
    ("AcksAreSlow", "DiskFillsUp", "DiskIsNearlyFull", "EventLoopIsLate", "SyncsAreSlow")
)
"""Alerts about the machine, which others use, too; without their patience they come and go."""
_OF_THE_MACHINE: Final = re.compile(r"\bcode=(SL-0005|SL-0323|SL-0324|SL-0901)\b")
"""The same in the log. A line does not go away, so one slow moment would be there to the end."""
_WARNED: Final = re.compile(r"^\S+ (warning|error|critical) +.*$", re.MULTILINE)
_CLOCK_READING: Final = re.compile(r"\b(\d+\.\d) s (?=ahead|behind)")


def to_ten_seconds(text: str) -> str:
    """``text`` with readings of another node's clock rounded: one is known to half of the round trip
    of the quickest heartbeat, and a busy machine makes that long."""
    return _CLOCK_READING.sub(lambda it: f"{round(float(it[1]), -1):.1f} s ", text)


class Said(NamedTuple):
    """By a program that has ended."""

    code: int
    text: str


class Row(NamedTuple):
    """What everybody says of node 1 in a state; parts of the texts."""

    code: str = ""
    """Of the condition, which everybody names who says something ..."""
    other_codes: frozenset[str] = frozenset()
    """... but for these, by the names of the fields: they name what follows from it, or is behind it."""
    ready: tuple[str, str] | None = None
    """A reason of its ``/readyz`` and what it says; None: it is ready."""
    page: str = ""
    """A finding of its page with its severity; empty: there is none."""
    others: str = ""
    """Likewise of the pages of the others."""
    doctor: tuple[str, ...] = ()
    """Lines of ``doctor`` on node 1, which fails if there are any."""
    log: str | None = ""
    """A line of its log that is worth a warning; empty: there is none; None: there may be any."""
    alerts: frozenset[str] = frozenset()
    check: tuple[str, ...] = ()
    """Lines of ``cluster check``, which fails if there are any."""
    state: str = "live"
    """Of node 1 in ``cluster nodes``."""


class Alerts:
    """A Prometheus with the rules that we ship, but that their patience (``for``) is gone."""

    def __init__(self, directory: Path, targets: list[str], *, ca: Path | None = None) -> None:
        """``ca``: nodes are asked by https, and their certificates are checked."""
        directory.mkdir(parents=True, exist_ok=True)
        self._url = f"http://127.0.0.1:{free_port()}"
        rules = yaml.safe_load((DEPLOY / "alerts.yml").read_text())
        for group in rules["groups"]:
            for rule in group["rules"]:
                rule.pop("for", None)
        (directory / "alerts.yml").write_text(yaml.safe_dump(rules))
        config = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
        config["rule_files"] = [str(directory / "alerts.yml")]
        config["global"] = {"evaluation_interval": "1s"}
        (job,) = config["scrape_configs"]
        job["scrape_interval"] = job["scrape_timeout"] = "1s"
        job["static_configs"] = [{"targets": targets}]
        if ca is not None:
            job |= {"scheme": "https", "tls_config": {"ca_file": str(ca)}}
        (directory / "prometheus.yml").write_text(yaml.safe_dump(config))
        self._command = [
            str(PROMETHEUS),
            f"--config.file={directory / 'prometheus.yml'}",
            f"--storage.tsdb.path={directory / 'data'}",
            f"--web.listen-address={self._url.removeprefix('http://')}",
            "--log.level=warn",
        ]
        self._log = (directory / "prometheus.log").open("wb")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=self._log, stderr=self._log)
        wait_until(self._is_ready, "prometheus is not ready")

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(20)
        self._log.close()

    def codes(self) -> set[str]:
        """Of what is firing."""
        return {it["annotations"]["code"] for it in self._ask("alerts")["alerts"]}

    def firing(self) -> set[str]:
        return {it["labels"]["alertname"] for it in self._ask("alerts")["alerts"]}

    def _is_ready(self) -> bool:
        try:
            return bool(self._ask("query", query="vector(1)"))
        except OSError:
            return False

    def _ask(self, what: str, **asked: str) -> Any:
        url = f"{self._url}/api/v1/{what}?{urllib.parse.urlencode(asked)}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)["data"]


class Everyone:
    """``with Everyone(cluster) as everyone``; the log is told from ``mark`` on."""

    def __init__(self, cluster: Cluster, *options: str, https_ca: Path | None = None) -> None:
        """``options``: of commands that go to the socket API."""
        self.cluster = cluster
        self._options = options
        self._marks = dict.fromkeys(cluster.nodes, 0)
        self.alerts: Alerts | None = None
        if PROMETHEUS is not None:
            nodes = cluster.nodes.values()
            folder = cluster[1].directory.parent / "prometheus"
            targets = [f"{it.host}:{it.http_port}" for it in nodes]
            self.alerts = Alerts(folder, targets, ca=https_ca)

    def __enter__(self) -> Self:
        if self.alerts is not None:
            self.alerts.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.alerts is not None:
            self.alerts.stop()

    def mark(self) -> None:
        """What was logged until now is of no interest."""
        self._marks = {i: len(node.log_text()) for i, node in self.cluster.nodes.items()}

    def log(self, number: int) -> list[str]:
        """Lines that are worth a warning, of this node since the mark, but those of the machine."""
        text = self.cluster[number].log_text()[self._marks[number] :]
        lines = (it.group(0) for it in _WARNED.finditer(text))
        return [it for it in lines if not _OF_THE_MACHINE.search(it)]

    def agree(self, row: Row, *asked: int) -> None:
        """Wait until each says what ``row`` has. ``asked``: only these; others may hang."""
        node = self.cluster[1]
        others = [it for it in self.cluster.running() if it is not node]
        if asked:
            others = [it for it in others if it.number in asked]
        _wait(lambda: _is_ready_as(self.ready(1), row.ready), lambda: self.ready(1))
        assert node.http("/healthz")[0] == 200
        _wait(lambda: _has(self.page(1), row.page), lambda: self.page(1))
        for other in others:
            number = other.number
            _wait(partial(self._page_has, number, row.others), partial(self.page, number))
        _wait(lambda: row.log is None or _has(self.log(1), row.log), lambda: self.log(1))
        _wait(lambda: _says(self.check(*asked), row.check), lambda: self.check(*asked))
        told = self.nodes(*asked)
        assert re.search(rf"^ +1 .* {re.escape(row.state)} +(yes|no) ", told.text, re.M), told
        told = self.doctor(1)
        assert _says(told, row.doctor), told
        if self.alerts is not None:
            firing = self.alerts.firing
            _wait(lambda: firing() - BY_THE_WAY == row.alerts, firing)
        if row.code:
            self._agree_on_the_code(row, others, asked)

    def _agree_on_the_code(
        self, row: Row, others: list[NodeProcess], asked: tuple[int, ...]
    ) -> None:
        said = {
            "page": _with(row.page, self.page(1)),
            "others": [line for it in others for line in _with(row.others, self.page(it.number))],
            "log": _with(row.log or "", self.log(1)),
            "check": self.check(*asked).text.splitlines() if row.check else [],
            "doctor": self.doctor(1).text.splitlines() if row.doctor else [],
            "alerts": sorted(self.alerts.codes()) if self.alerts is not None else [],
        }
        for name, lines in said.items():
            if lines and name not in row.other_codes:
                assert any(row.code in line for line in lines), (name, row.code, lines)
        assert row.other_codes <= said.keys()

    def _page_has(self, number: int, wanted: str) -> bool:
        return _has(self.page(number), wanted)

    def ready(self, number: int) -> tuple[int, dict[str, str]]:
        """The status of ``/readyz`` and its reasons; 0 where nobody answers."""
        status, text = self.cluster[number].http("/readyz")
        return status, json.loads(to_ten_seconds(text))["reasons"] if text else {}

    def page(self, number: int) -> list[str]:
        """``code severity: what -> remedy``."""
        text = self.cluster[number].http("/api/status")[1]
        found = json.loads(to_ten_seconds(text))["findings"] if text else []
        return [f"{it['code']} {it['severity']}: {it['what']} -> {it['remedy']}" for it in found]

    def unfit(self, number: int) -> set[str]:
        """By the metric."""
        text = self.cluster[number].http("/metrics")[1]
        return set(re.findall(r'^streamlog_node_unfit\{reason="(\w+)"\} 1\.0$', text, re.MULTILINE))

    def check(self, *numbers: int) -> Said:
        return self.command("cluster", "check", *self._servers(numbers))

    def nodes(self, *numbers: int) -> Said:
        return self.command("cluster", "nodes", *self._servers(numbers))

    def doctor(self, number: int) -> Said:
        return self.command("doctor", "--config", str(self.cluster[number].config))

    def command(self, *words: str) -> Said:
        done = subprocess.run(
            [program("streamlog"), *words],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            env={**os.environ, "NATS_URL": self.cluster.nats.url, "COLUMNS": "200"},
        )
        return Said(done.returncode, to_ten_seconds(done.stdout + done.stderr))

    def _servers(self, numbers: tuple[int, ...]) -> tuple[str, ...]:
        nodes: list[NodeProcess] = [self.cluster[i] for i in numbers or self.cluster.nodes]
        return ("--bootstrap-server", ",".join(node.kafka for node in nodes), *self._options)


def _wait(condition: Callable[[], bool], told: Callable[[], object]) -> None:
    try:
        wait_until(condition, "they do not agree")
    except TimeoutError as error:
        raise AssertionError(f"{error}: {told()}") from None


def _is_ready_as(told: tuple[int, dict[str, str]], wanted: tuple[str, str] | None) -> bool:
    status, reasons = told
    if wanted is None:
        return (status, reasons) == (200, {})
    name, said = wanted
    return status == 503 and reasons.keys() == {name} and said in reasons[name]


def _has(lines: list[str], wanted: str) -> bool:
    return any(wanted in line for line in lines) if wanted else not lines


def _with(wanted: str, lines: list[str]) -> list[str]:
    return [line for line in lines if wanted and wanted in line]


def _says(told: Said, wanted: tuple[str, ...]) -> bool:
    return told.code == bool(wanted) and all(it in told.text for it in wanted)
