"""Which object store has what is tiered. How to log in there is no option: each machine finds its own credentials.

Options are shown, by Spark in plans and event logs.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from streamlog.errors import ConfigError

if TYPE_CHECKING:
    from streamlog.tier.blocking_store import BlockingStore

CREDENTIALS: Final = (
    "let each machine find its own: AWS_ACCESS_KEY_ID and its kin in the environment of driver and executors, or a"
    " role of the instance or the pod"
)


@dataclass(frozen=True)
class StoreOptions:
    """Can be pickled. Raises ConfigError for a URL that cannot be meant."""

    url: str
    """As ``tier.url`` of the nodes, or another name of the same place."""
    endpoint: str | None = None
    """As ``tier.endpoint``."""
    option: str = "store"
    """What the caller calls the URL."""
    endpoint_option: str = "store_endpoint"

    def __post_init__(self) -> None:
        from streamlog.tier.object_store import check_url

        for option, url in ((self.option, self.url), (self.endpoint_option, self.endpoint or "")):
            parts = urlsplit(url)
            if parts.username is not None or parts.query or parts.fragment:
                problem = (
                    "an option's value is shown in plans and event logs, so no secret may be in it"
                )
                raise ConfigError(option, problem, CREDENTIALS)
        try:
            check_url(self.url)
        except ConfigError as error:
            raise ConfigError(self.option, error.problem, error.remedy) from None

    def open(self) -> "BlockingStore":
        """Sends nothing yet. Raises ConfigError."""
        from streamlog.tier.blocking_store import BlockingStore

        parts = urlsplit(self.url)
        if parts.scheme == "file" and not Path(unquote(parts.path)).is_dir():
            remedy = "mount it at that path on the driver and on every executor"
            raise ConfigError(self.option, f"there is no folder {parts.path} here", remedy)
        try:
            return BlockingStore(self.url, endpoint=self.endpoint)
        except ConfigError as error:
            raise ConfigError(self.option, error.problem, error.remedy) from None
