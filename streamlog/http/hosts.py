"""By which names a listener on loopback is asked."""

import ipaddress
from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web

from streamlog.http.api.errors import refused

PUBLIC: Final = frozenset({"/healthz", "/readyz"})
"""For a load balancer, which has no token and may use any name."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@web.middleware
async def refuse_other_names(request: web.Request, handler: Handler) -> web.StreamResponse:
    """A name that was made to point to this machine (DNS rebinding) is not one that a listener on
    loopback goes by: the page of another site would read through a user's browser what is there.

    Health is for every client: who asks for it may use any name, and it tells nothing else.
    """
    if request.path not in PUBLIC and _is_local(request) and not _is_local_name(request.host):
        text = f"ask for localhost or an address, not {request.host[:100]!r}"
        return refused(request, 421, "MisdirectedRequest", text)
    return await handler(request)


def _is_local(request: web.Request) -> bool:
    """It came to a loopback address."""
    name = request.transport.get_extra_info("sockname") if request.transport else None
    return isinstance(name, tuple) and ipaddress.ip_address(name[0]).is_loopback


def _is_local_name(host: str) -> bool:
    name = host.rpartition("]")[0].lstrip("[") if host.startswith("[") else host.partition(":")[0]
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
