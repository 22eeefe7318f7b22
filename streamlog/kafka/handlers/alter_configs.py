"""AlterConfigs (33), versions 0 to 2: all of a topic's configs anew.

Configs of Kafka's that are not named go back to their defaults. Those that only streamlog has, the
``subject`` above all, stay as they are: a program that knows nothing of them must not end what is
stored.
"""

from typing import Final

from streamlog.kafka.configs.config_changes import Changes, alter_resources, check_value
from streamlog.kafka.context import Context
from streamlog.metadata.stream.alteration import SettingChange
from streamlog.metadata.stream.settings_table import OUR_KEYS, SETTINGS, setting_of_topic_config
from streamlog.wire.control import Message

KAFKAS: Final = tuple(
    row.name
    for row in SETTINGS
    if row.kafka is not None and row.kafka != "subject" and not row.kafka.startswith(OUR_KEYS)
)
"""Settings that Kafka has configs for."""


async def handle(request: Message, _version: int, context: Context) -> Message:
    return await alter_resources(request, context, _changes)


def _changes(resource: Message) -> Changes:
    named = {
        setting_of_topic_config(it["name"]).name: check_value(it["name"], it["value"])
        for it in resource["configs"]
    }
    unnamed = (SettingChange(setting=it, operation="reset") for it in KAFKAS if it not in named)
    values = (SettingChange(setting=name, text=text) for name, text in named.items())
    return (*unnamed, *values)
