"""The style sheet, the script and the icon: by what is in them, so that a browser may keep them."""

from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from bridge.web.console import STATIC, static

_TYPES: Final = {
    "console.css": "text/css",
    "console.js": "text/javascript",
    "live.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}


def answer(request: Request) -> Response:
    """One of them."""
    name = request.path_params["name"]
    if name not in _TYPES or request.url.path != static(name):
        raise HTTPException(404)
    headers = {"cache-control": "public, max-age=31536000, immutable"}
    return Response((STATIC / name).read_bytes(), media_type=_TYPES[name], headers=headers)
