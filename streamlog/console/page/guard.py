"""What goes with each answer, and who is not answered at all."""

import ipaddress
from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
"""Content Security Policy Level 3: our own files, nothing inline, no frame, no HTML from text."""

HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Server": "streamlog",
}


async def add_headers(_: web.Request, response: web.StreamResponse) -> None:
    """A signal of aiohttp's, ``on_response_prepare``; errors are answers, too."""
    for name, value in HEADERS.items():
        response.headers[name] = value


@web.middleware
async def refuse_other_sites(request: web.Request, handler: Handler) -> web.StreamResponse:
    """No page of another site reads the API through somebody's browser.

    Browsers say so themselves (Fetch Metadata); and a name that was made to point to this machine
    (DNS rebinding) is not one that a node on loopback goes by.
    """
    if request.path.startswith("/api/"):
        site = request.headers.get("Sec-Fetch-Site", "none")
        if site not in ("none", "same-origin"):
            return web.Response(status=403, text="pages of other sites are not answered\n")
        if _is_local(request) and not _is_local_name(request.host):
            text = f"ask for localhost or an address, not {request.host[:100]!r}\n"
            return web.Response(status=421, text=text)
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
