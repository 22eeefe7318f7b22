"""Which options there are, and what each is for.

One that is not in the table is refused by its name, as is one that has no meaning for what is
read: a misspelt option that is silently ignored reads the wrong rows.
"""

import difflib
from collections.abc import Iterable
from typing import Final

from streamlog.errors import ConfigError

BOTH: Final = (
    "path",
    "servers",
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "includeHeaders",
    "minPartitions",
    "maxBytesPerPartition",
    "failOnDataLoss",
    "isolationLevel",
    "checkCrc",
    "batchRows",
    "batchBytes",
)
BATCH: Final = (
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "filterPushdown",
)
STREAM: Final = (
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "maxTriggerDelay",
)
SOCKET: Final = (
    "fetchMaxBytes",
    "fetchTimeoutMs",
    "fetchRetries",
    "security.tls",
    "security.caFile",
    "security.certFile",
    "security.keyFile",
    "security.keyPasswordFile",
    "security.mechanism",
    "security.user",
    "security.passwordFile",
    "security.tokenFile",
)
"""Of reading from ``servers``."""
FILES: Final = ("encryption.keys",)
"""Of reading by ``path``."""
NAMES: Final = (*BOTH, *BATCH, *STREAM, *SOCKET, *FILES)

ELSEWHERE: Final = {
    "kafka.bootstrap.servers": "servers",
    "bootstrap.servers": "servers",
    "kafkaconsumer.polltimeoutms": "fetchTimeoutMs",
    "fetchoffset.numretries": "fetchRetries",
    "topic": "subscribe",
}
"""What others call them, in lower case."""

_SECRETS: Final = ("password", "secret", "token", "sasl", "credential")


def check_names(names: Iterable[str], *, streaming: bool, from_servers: bool) -> None:
    """``names`` in lower case. Raises ConfigError for the first that has no business here."""
    misplaced = {name.lower(): name for name in (BATCH if streaming else STREAM)}
    elsewhere = {name.lower(): name for name in (FILES if from_servers else SOCKET)}
    where = "reading by path" if from_servers else "reading from servers"
    known = {name.lower() for name in NAMES}
    for name in names:
        if name not in known:
            raise unknown_option(name, NAMES)
        if name in misplaced:
            other = "batch reads" if streaming else "streaming"
            raise ConfigError(misplaced[name], f"it belongs to {other}", "remove it")
        if name in elsewhere:
            raise ConfigError(elsewhere[name], f"it belongs to {where}", "remove it")


def unknown_option(name: str, names: Iterable[str]) -> ConfigError:
    """What to say of a name, in lower case, that is none of ``names``."""
    if any(word in name for word in _SECRETS):
        problem = "an option's value is shown in plans and event logs, so no secret may be one"
        return ConfigError(name, problem, "name a file: security.passwordFile")
    by_lower = {known.lower(): known for known in names}
    near = [ELSEWHERE.get(name, "").lower(), *difflib.get_close_matches(name, by_lower, 1, 0.7)]
    meant = [by_lower[known] for known in near if known in by_lower]
    remedy = f"did you mean {meant[0]}?" if meant else f"there are {', '.join(by_lower.values())}"
    return ConfigError(name, "the source streamlog has no such option", remedy)
