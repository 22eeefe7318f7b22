"""``docs/stream-settings.md``: every setting of a stream, out of the table of them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from streamlog.metadata.stream.inert_configs import INERT_CONFIGS, INERT_KEYS, InertConfig
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


INERT_HEAD: Final = f"""
## Topic configs of Kafka's without effect

Kafka's tools set these by their own defaults, and compare what they read with what they have set. CreateTopics,
AlterConfigs and IncrementalAlterConfigs take them, refuse what Kafka refuses (INVALID_CONFIG), and keep them;
DescribeConfigs returns what was set. They change nothing. In JetStream's configuration each is a key of the metadata,
with `{INERT_KEYS}` before its name. A stream with one of them needs feature level 3.

**They do not make a stream more durable.** `flush.messages=1` adds nothing to `sync` `commit`, the default, which
syncs each record before its ack; on a stream with `sync` `interval` or `os` it does not bring a sync, so set
`streamlog.sync=commit` there.

Some other topic configs of Kafka's have a narrower range here: `retention.ms` is at least 100, or -1; `segment.ms` at
least 100; `max.message.bytes` 1 to 64 MiB, or -1; `retention.bytes` is not 0; `cleanup.policy` is not empty.
`segment.bytes` may be as little as 4 KiB, where Kafka 4 wants 1 MiB. `compression.type` says how batches of NATS
messages are compressed; `producer`, the default, leaves these as they are (`none` in the table, and the same is
`uncompressed`). Batches of Kafka producers stay as they were sent. Configs of Kafka 3 that Kafka 4 has removed
(`message.format.version`, `message.downconversion.enable`, `message.timestamp.difference.max.ms`) are refused, as
there.

| Kafka | values | default | instead |
|---|---|---|---|
"""


def page() -> str:
    """The whole page."""
    inert = "\n".join(map(_inert_row, INERT_CONFIGS.values()))
    return "".join(
        (HEAD, "\n".join(map(_row, SETTINGS)), "\n", *_levels(), INERT_HEAD, inert, "\n")
    )


def _inert_row(row: InertConfig) -> str:
    why = row.why.format_map({name: f"`{name}`" for name in TOPIC_CONFIGS})
    return f"| `{row.name}` | {row.values} | `{row.default}` | {why} |"


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
    return f"`{row.default if row.type.choices else row.form.to_text(row.default)}`"


def _levels() -> Iterator[str]:
    for row in SETTINGS:
        if row.about.level > 1:
            yield f"\n`{row.name}` needs feature level {row.about.level}.\n"
