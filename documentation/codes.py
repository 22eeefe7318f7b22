"""The codes in ``docs/troubleshooting.md``: out of the conditions that the code declares, and the alerts."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import yaml

from streamlog.cli.explain import Declared, declared, to_do
from streamlog.condition import AREAS

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = ROOT / "docs" / "troubleshooting.md"
ALERTS: Final = ROOT / "deploy" / "alerts.yml"

MARK: Final = "<!-- Made of the conditions in streamlog by `python -m documentation`; `make lint` compares. -->\n"
"""What is below it is made; what is above is written by hand."""


def page() -> str:
    return "".join((PAGE.read_text().partition(MARK)[0], MARK, *_areas()))


def alerts_by_code() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for group in yaml.safe_load(ALERTS.read_text())["groups"]:
        for rule in group["rules"]:
            if "alert" in rule:
                found.setdefault(rule["annotations"]["code"], []).append(rule["alert"])
    return found


def _areas() -> Iterator[str]:
    alerts = alerts_by_code()
    for digits, area in AREAS.items():
        yield f"\n### {area}\n\n"
        yield "| code | what is wrong | do | also in the log as; alert |\n|---|---|---|---|\n"
        for it in declared():
            if it.condition.code[3:5] == digits:
                yield _row(it, alerts.get(it.condition.code, []))


def _row(it: Declared, alerts: list[str]) -> str:
    condition = it.condition
    what = f"**{condition.title}**. {condition.meaning}"
    remedy = to_do(condition)
    if condition.runbook:
        name = condition.runbook.rpartition("/")[2].removesuffix(".md").replace("-", " ")
        remedy += f"; [{name}]({condition.runbook})"
    seen = [", ".join(f"`{event}`" for event in it.events), ", ".join(alerts)]
    anchor = f'<a id="{condition.code.lower()}"></a>`{condition.code}`'
    cells = (anchor, what, remedy, "; ".join(filter(None, seen)))
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"
