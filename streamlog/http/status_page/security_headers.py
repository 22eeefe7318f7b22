"""What goes with each answer, and who is not answered at all."""

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
    """No page of another site reads the API through somebody's browser: browsers say so themselves
    (Fetch Metadata).
    """
    if request.path.startswith("/api/"):
        site = request.headers.get("Sec-Fetch-Site", "none")
        if site not in ("none", "same-origin"):
            return web.Response(status=403, text="pages of other sites are not answered\n")
    return await handler(request)
