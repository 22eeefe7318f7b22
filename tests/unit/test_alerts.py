"""Alerts: each asks for series that there are, says what to do, and is shown firing."""

import re
import shutil
import subprocess
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from streamlog.cli.explain import declared
from streamlog.tls.certificate import SOON, URGENT
from tests.unit.metric_families import families

DEPLOY = Path(__file__).parents[2] / "deploy"
PROMTOOL = shutil.which("promtool")
FROM_ELSEWHERE = {"up"}

RULES = [
    rule
    for group in yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"]
    for rule in group["rules"]
]
ALERTS = {rule["alert"]: rule for rule in RULES if "alert" in rule}
TESTS = yaml.safe_load((DEPLOY / "alerts.test.yml").read_text())["tests"]

WANTED = {
    "under-replicated": "PartitionsAreUnderReplicated",
    "no leader": "PartitionsHaveNoLeader",
    "ISR flapping": "InSyncSetsFlap",
    "ack latency": "AcksAreSlow",
    "disk filling": "DiskFillsUp",
    "event loop": "EventLoopIsLate",
    "consumer lag": "ConsumerGroupFallsBehind",
    "NATS cut off": "NatsIsNotThere",
    "clock skew": "ClockIsWrong",
    "certificates that expire": "CertificateExpires",
}

needs_promtool = pytest.mark.skipif(
    PROMTOOL is None, reason="promtool is not installed (apt-get install prometheus)"
)


def asked(expression: str) -> set[str]:
    """Names of series in it, a histogram's without its suffix."""
    names = re.findall(r"\bstreamlog_\w+|\bprocess_\w+|\bup\b", expression)
    return {re.sub(r"_(bucket|sum|count)$", "", name) for name in names}


@pytest.mark.parametrize("rule", RULES, ids=lambda it: it.get("alert") or it["record"])
def test_it_asks_for_series_that_there_are(rule: dict[str, Any]) -> None:
    names = asked(rule["expr"])
    assert names and names <= families().keys() | FROM_ELSEWHERE


def test_every_trouble_that_was_thought_of_has_an_alert() -> None:
    assert set(WANTED.values()) <= ALERTS.keys()


@pytest.mark.parametrize(
    ("name", "left"), [("CertificateExpiresSoon", SOON), ("CertificateExpires", URGENT)]
)
def test_alerts_and_doctor_worry_at_the_same_time(name: str, left: timedelta) -> None:
    assert ALERTS[name]["expr"].endswith(f"< {left.days} * 86400")


@pytest.mark.parametrize("name", ALERTS)
def test_it_says_how_bad_it_is_and_what_to_do(name: str) -> None:
    rule = ALERTS[name]
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert rule["annotations"].keys() == {"summary", "code", "remedy"}
    assert all(rule["annotations"].values())


@pytest.mark.parametrize("name", ALERTS)
def test_its_remedy_is_that_of_its_code(name: str) -> None:
    """An alert may add where to look."""
    told = ALERTS[name]["annotations"]
    (condition,) = (it.condition for it in declared() if it.condition.code == told["code"])
    assert told["remedy"].startswith(condition.remedy_for({}))


@pytest.mark.parametrize("name", ALERTS)
def test_it_is_shown_firing_and_not_firing(name: str) -> None:
    shown = [
        bool(case["exp_alerts"])
        for test in TESTS
        for case in test["alert_rule_test"]
        if case["alertname"] == name
    ]
    assert set(shown) == {False, True}


def test_names_of_recorded_series_say_what_they_are_of() -> None:
    """level:metric:operations, as Prometheus's own guide has it."""
    names = [rule["record"] for rule in RULES if "record" in rule]
    assert names and all(re.fullmatch(r"streamlog:\w+:\w+", name) for name in names)


def test_prometheus_is_told_of_the_rules() -> None:
    assert yaml.safe_load((DEPLOY / "prometheus.yml").read_text())["rule_files"] == ["alerts.yml"]


@needs_promtool
@pytest.mark.parametrize("command", ["check rules alerts.yml", "test rules alerts.test.yml"])
def test_promtool_agrees(command: str) -> None:
    assert PROMTOOL is not None
    done = subprocess.run(
        [PROMTOOL, *command.split()], cwd=DEPLOY, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
