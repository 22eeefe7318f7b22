"""Which options there are, and what each is for.

One that is not in the table is refused by its name, as is one that has no meaning for what is
read: a misspelt option that is silently ignored reads the wrong rows.
"""

import difflib
from collections.abc import Iterable
from typing import Final

from streamlog.arrow.options.store_options import CREDENTIALS
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
    "store",
    "store.endpoint",
)
"""Of reading from ``servers``."""
FILES: Final = ("encryption.keys",)
"""Of reading by ``path``, or with a ``store``."""
NAMES: Final = (*BOTH, *BATCH, *STREAM, *SOCKET, *FILES)

ELSEWHERE: Final = {
    "kafka.bootstrap.servers": "servers",
    "bootstrap.servers": "servers",
    "kafkaconsumer.polltimeoutms": "fetchTimeoutMs",
    "fetchoffset.numretries": "fetchRetries",
    "topic": "subscribe",
    "fs.s3a.endpoint": "store.endpoint",
    "tier.url": "store",
    "tier.endpoint": "store.endpoint",
}
"""What others call them, in lower case."""

_SECRETS: Final = ("password", "secret", "token", "sasl", "credential")
_STORE_SECRETS: Final = (
    "access.key", "accesskey", "access_key", "secret.key", "secretkey", "secret_key", "session.token", "sessiontoken",
    "session_token", "account.key", "accountkey", "account_key", "aws", "fs.s3", "fs.azure", "fs.gs",
)  # fmt: skip
"""What keys to object stores are called."""


def check_names(
    names: Iterable[str], *, streaming: bool, from_servers: bool, from_store: bool
) -> None:
    """``names`` in lower case. Raises ConfigError for the first that has no business here."""
    misplaced = {name.lower(): name for name in (BATCH if streaming else STREAM)}
    apart = SOCKET if not from_servers else () if from_store else FILES
    elsewhere = {name.lower(): name for name in apart}
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
    problem = "an option's value is shown in plans and event logs, so no secret may be one"
    if name not in ELSEWHERE and any(word in name for word in _STORE_SECRETS):
        return ConfigError(name, problem, f"for an object store, {CREDENTIALS}")
    if any(word in name for word in _SECRETS):
        return ConfigError(name, problem, "name a file: security.passwordFile")
    by_lower = {known.lower(): known for known in names}
    near = [ELSEWHERE.get(name, "").lower(), *difflib.get_close_matches(name, by_lower, 1, 0.7)]
    meant = [by_lower[known] for known in near if known in by_lower]
    remedy = f"did you mean {meant[0]}?" if meant else f"there are {', '.join(by_lower.values())}"
    return ConfigError(name, "the source streamlog has no such option", remedy)
