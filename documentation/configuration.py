"""``docs/configuration.md``: every setting of a node, out of the models that check them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from streamlog.config.description import (
    NodeSetting,
    SectionDescription,
    described_sections,
    toml_value,
)

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = ROOT / "docs" / "configuration.md"

HEAD: Final = """\
# Configuration

<!-- Made of streamlog/config/node_settings.py by `python -m documentation`; `make lint` compares. -->

A node reads one TOML file (`streamlog serve --config node.toml`). Environment variables override
single keys: `STREAMLOG_KAFKA__PORT=9093` sets `port` of the table `[kafka]`. Only `node.data_dir`
must be set. A node with an unknown key, a wrong type or contradictory settings does not start; one
line for each mistake names the key and the remedy.

```console
$ streamlog config init node.toml --data-dir /var/lib/streamlog   # write a file with every setting
$ streamlog config check node.toml                                # report every mistake in it
```

`config init` writes what [`config/node.toml`](../config/node.toml) shows: all settings, commented out at their
defaults. Its options set what you must choose: the data folder, the node's id, listeners, NATS servers and voters.
`config check` also reads the files that the settings name, and compares settings with each other. Its exit code is 1 if
a node would not start or not work; with `--strict` warnings fail as well.

[Operations](operations.md#which-settings-must-agree) lists the settings that must agree on all nodes of a cluster. The
settings of a stream are on [another page](stream-settings.md).

Settings are read at the start of a node, so a changed file takes effect at the next start. Names end with their unit:
`_ms`, `_bytes`, `_bytes_per_s`. In the file durations are milliseconds and sizes bytes; this page shows ranges in
larger units.
"""

_ROW: Final = "| {} | {} | {} | {} |"


def page() -> str:
    """The whole page."""
    return "\n".join([HEAD, *map(_section, described_sections())])


def _section(section: SectionDescription) -> str:
    table = "\n".join(_table(section))
    return f"## `[{section.name}]`\n\n{section.meaning}\n\n{table}\n"


def _table(section: SectionDescription) -> Iterator[str]:
    yield _ROW.format("key", "default", "values", "meaning")
    yield "|---|---|---|---|"
    for it in section.settings:
        yield _ROW.format(f"`{it.key}`", _default(it), _values(it), _meaning(it))
    yield f"\nIn the environment: `{section.variable}`."


def _default(it: NodeSetting) -> str:
    if it.is_required:
        return "must be set"
    if it.default is None:
        return "not set"
    text, _, human = it.default_text.partition(" (")
    return f"`{text}` ({human}" if human else f"`{it.default_text}`"


def _values(it: NodeSetting) -> str:
    if it.type.choices:
        return ", ".join(f"`{choice}`" for choice in it.type.choices)
    return it.values


def _meaning(it: NodeSetting) -> str:
    text = it.meaning
    if it.example is not None and it.default is not None:
        text += f" Example: `{toml_value(it.example)}`."
    return text.replace("|", "\\|")
