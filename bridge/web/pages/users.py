"""Users: who may sign in, and what they may. They are changed in a terminal."""

from starlette.requests import Request
from starlette.responses import Response

from bridge.web import console


def listed(request: Request) -> Response:
    """All of them, by name."""
    asked = console.of(request)
    return asked.page(request, "users.html", users=asked.desk.users.all(), proxy=asked.proxy)
