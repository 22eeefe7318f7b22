from typing import NamedTuple

from streamlog.kafka.net.request_wait import RequestWait


class Requester(NamedTuple):
    """Who has sent a request, and how long it may wait for the answer."""

    client_id: str
    host: str
    poll: RequestWait
    """Ends where the client is gone, or the node stops."""
