"""IncrementalAlterConfigs (44), versions 0 and 1: some of a topic's configs (KIP-339).

Set, delete (back to the default), and for ``subject`` and ``cleanup.policy``, which are lists,
append and subtract. All else stays as it is.
"""

from typing import Final

from kio.schema.errors import ErrorCode

from streamlog.kafka.configs.config_changes import Changes, alter_resources, check_value
from streamlog.kafka.context import Context
from streamlog.kafka.refusal import RequestRefused
from streamlog.metadata.stream.alteration import LISTS, Operation, SettingChange
from streamlog.metadata.stream.settings_table import setting_of_topic_config
from streamlog.wire.control import Message

_OPERATIONS: Final[dict[int, Operation]] = {0: "set", 1: "reset", 2: "append", 3: "subtract"}


async def handle(request: Message, _version: int, context: Context) -> Message:
    return await alter_resources(request, context, _changes)


def _changes(resource: Message) -> Changes:
    return tuple(_change(config) for config in resource["configs"])


def _change(config: Message) -> SettingChange:
    key = config["name"]
    operation = _OPERATIONS.get(config["config_operation"])
    if operation is None:
        text = f"{key}: there is no operation {config['config_operation']}, only 0 to 3"
        raise RequestRefused(ErrorCode.invalid_request, text)
    row = setting_of_topic_config(key)
    if operation in ("append", "subtract") and row.name not in LISTS:
        raise RequestRefused(ErrorCode.invalid_config, f"{key}: is no list; set it instead")
    text = "" if operation == "reset" else check_value(key, config["value"])
    return SettingChange(setting=row.name, operation=operation, text=text)
