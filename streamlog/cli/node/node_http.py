"""The HTTP of the node on this machine, asked as its own settings say."""

import http.client
import ssl
from typing import TYPE_CHECKING, Final, NamedTuple

from streamlog.errors import ConfigError, NodeUnreachable

if TYPE_CHECKING:
    from streamlog.config import Settings

LOOPBACK: Final = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}
"""Where one who listens everywhere is found."""
ANSWER_BYTES_MAX: Final = 64 * 1024


class HttpAnswer(NamedTuple):
    """What came back."""

    status: int
    text: str


class NodeHttpClient:
    """By TLS where the node speaks it, with its certificate where it asks for one."""

    def __init__(self, settings: "Settings") -> None:
        """Raises ConfigError."""
        from streamlog.tls.certificates import probing_context

        self.host = LOOPBACK.get(settings.http.host, settings.http.host)
        self.port = settings.http.port
        self.tls: ssl.SSLContext | None = probing_context(settings)
        if not self.port:
            problem = "is 0: the system chose a port, and no other program knows it"
            raise ConfigError("http.port", problem, "set it to a port of your choice")

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def scheme(self) -> str:
        return "http" if self.tls is None else "https"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.address}"

    def get(self, path: str, timeout_s: float) -> HttpAnswer:
        """Raises NodeUnreachable. ``timeout_s`` is for each step on the way."""
        connection = self._connection(timeout_s)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            body = answer.read(ANSWER_BYTES_MAX + 1)
            if len(body) > ANSWER_BYTES_MAX:
                raise OSError(f"more than {ANSWER_BYTES_MAX} bytes")
            return HttpAnswer(answer.status, body.decode("utf-8", "replace"))
        except (OSError, http.client.HTTPException) as error:
            what = str(error) or type(error).__name__
            unreachable = NodeUnreachable(f"{self.url} does not answer: {what}")
            unreachable.is_timeout = isinstance(error, TimeoutError)
            raise unreachable from None
        finally:
            connection.close()

    def _connection(self, timeout_s: float) -> http.client.HTTPConnection:
        if self.tls is None:
            return http.client.HTTPConnection(self.host, self.port, timeout=timeout_s)
        return http.client.HTTPSConnection(
            self.host, self.port, timeout=timeout_s, context=self.tls
        )
