"""One request over NATS whose reply subject is signed."""

import contextlib
from collections.abc import Callable

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

Sign = Callable[[str, bytes, str], dict[str, str] | None]
"""Headers that prove who asks, of the subject, the payload and the reply subject; None: unsigned.
"""

STATUS = "Status"
NO_RESPONDERS = "503"


async def ask(client: Client, subject: str, data: bytes, sign: Sign, *, timeout_s: float) -> Msg:
    """The answer. The client library makes up the reply subject of a request when it is too late to
    sign it, so this one has a subscription of its own. Raises nats.errors.Error.
    """
    reply = client.new_inbox()
    headers = sign(subject, data, reply)
    if headers is None:
        return await client.request(subject, data, timeout=timeout_s)
    subscription = await client.subscribe(reply, max_msgs=1)
    try:
        await client.publish(subject, data, reply=reply, headers=headers)
        message = await subscription.next_msg(timeout=timeout_s)
    finally:
        with contextlib.suppress(nats.errors.Error):  # it is closed, or was enough
            await subscription.unsubscribe()
    if (message.headers or {}).get(STATUS) == NO_RESPONDERS:
        raise nats.errors.NoRespondersError
    return message
