"""``docs/stream-settings.md``: every setting of a stream, out of the table of them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from streamlog.metadata.stream.setting_type import INT64_MAX, UNLIMITED, StreamSetting
from streamlog.metadata.stream.settings_translation import SETTINGS, TOPIC_CONFIGS

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = ROOT / "docs" / "stream-settings.md"

HEAD: Final = """\
# Settings of a stream

<!-- Made of streamlog/metadata/stream/stream_config.py by `python -m documentation`; `make lint` compares. -->

A stream has the same settings whether you change them with `streamlog stream add` and `stream edit`, with JetStream's
API or with Kafka's. The table has their names in all three:

- **Kafka**: the topic config. CreateTopics has places of its own for partitions and replicas. Durations are in
  milliseconds, sizes in bytes.
- **JetStream**: the field of the stream's configuration; a name that begins with `streamlog.` is a key of its
  `metadata`, whose values are texts. JetStream's durations are in nanoseconds.
- **command line**: the option of `stream add` and `stream edit`. Durations are `7d`, `12h`, `30m`, `10s` or `500ms`,
  and sizes `10GiB`, `512MiB` or `64k` (of 1,024). A number without a unit is in milliseconds or bytes.

A limit of -1, or `unlimited` on the command line, is no limit. Limits apply to each partition. Where the default is a
setting of the node, `log.…` in its [configuration](configuration.md#log), DescribeConfigs shows it with the source
`STATIC_BROKER_CONFIG`; it shows a setting that is not the default as `DYNAMIC_TOPIC_CONFIG`.
[What streams do](streams.md) explains the features.

| setting | Kafka | JetStream | command line | values | default | meaning |
|---|---|---|---|---|---|---|
"""


def page() -> str:
    """The whole page."""
    return HEAD + "\n".join(map(_row, SETTINGS)) + "\n" + "".join(_levels())


def _row(row: StreamSetting) -> str:
    meaning = row.about.meaning.format_map({name: f"`{name}`" for name in TOPIC_CONFIGS})
    if row.about.minus_one != "no limit":
        meaning += f" -1: {row.about.minus_one}."
    if row.about.see:
        meaning += f" [More]({row.about.see})"
    cells = (
        f"`{row.name}`",
        f"`{row.kafka}`" if row.kafka else "",
        f"`{row.jetstream or row.key}`",
        f"`{row.option}`" if row.option else "",
        _values(row),
        _default(row),
        meaning.replace("<", "&lt;").replace("|", "\\|"),
    )
    return f"| {' | '.join(cells)} |"


def _values(row: StreamSetting) -> str:
    if row.type.choices:
        return ", ".join(f"`{it}`" for it in row.type.choices)
    if row.type.kind is bool:
        return "`true`, `false`"
    if row.type.high == INT64_MAX:
        low = row.type.low or 0
        return f"{row.unit or 'number'}, from {'1, or -1' if row.is_limit else f'{low:.0f}'}"
    return row.range_text.replace(UNLIMITED, "-1")


def _default(row: StreamSetting) -> str:
    about = row.about
    if about.node_setting is not None:
        return f"the node's `log.{about.node_setting}`"
    if about.default:
        return about.default.format_map({name: f"`{name}`" for name in TOPIC_CONFIGS})
    return f"`{row.form.to_text(row.default)}`"


def _levels() -> Iterator[str]:
    for row in SETTINGS:
        if row.about.level > 1:
            yield f"\n`{row.name}` needs feature level {row.about.level}.\n"
