"""The page's own files, by name: there is no path to be tricked."""

from functools import partial
from importlib import resources
from typing import Final

from aiohttp import web

FILES: Final = {
    "/": ("index.html", "text/html"),
    "/static/console.css": ("console.css", "text/css"),
    "/static/console.js": ("console.js", "text/javascript"),
    "/static/dom.js": ("dom.js", "text/javascript"),
    "/static/lists.js": ("lists.js", "text/javascript"),
    "/static/tail.js": ("tail.js", "text/javascript"),
    "/static/icon.svg": ("icon.svg", "image/svg+xml"),
}


class Assets:
    """Read once, when first asked for."""

    def __init__(self) -> None:
        self._bodies: dict[str, bytes] = {}

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get(path, partial(self._file, name, content_type))
            for path, (name, content_type) in FILES.items()
        ]

    async def _file(self, name: str, content_type: str, _: web.Request) -> web.Response:
        body = self._bodies.get(name)
        if body is None:
            folder = resources.files("streamlog.http.status_page") / "static"
            body = self._bodies[name] = (folder / name).read_bytes()
        return web.Response(body=body, content_type=content_type, charset="utf-8")
