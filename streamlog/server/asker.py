from typing import NamedTuple

from streamlog.server.poll import Poll


class Asker(NamedTuple):
    """Who has sent a request, and how long it may wait for the answer."""

    client_id: str
    host: str
    poll: Poll
    """Ends where the client is gone, or the node stops."""
