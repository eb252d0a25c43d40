"""Webhooks: who is told of alarms; added, tried, switched and removed by an admin."""

from collections.abc import Callable
from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from bridge.deadletters.webhooks.events import ALL, About
from bridge.deadletters.webhooks.formats import Format
from bridge.deadletters.webhooks.webhooks import Added
from bridge.errors import WebhookRefused
from bridge.web import console

HERE: Final = "/admin/webhooks"


def listed(request: Request) -> Response:
    """All of them, with what each was told last, and a form for another."""
    return _page(request)


def add(request: Request) -> Response:
    """Add one, and show its secret this once."""
    here, said = console.of(request), request.state.form
    about = [each for each in ALL if said.get(f"of-{each}")]
    if not about:
        return _page(request, 400, "Tick what it is to be told of.")
    try:
        format_ = Format(said.get("format", ""))
        given = (said.get("name", ""), format_, about, said.get("address", ""), said.get("key", ""))
        added = here.desk.webhooks.add(*given, console.asking(request).name)
    except WebhookRefused as error:
        return _page(request, 400, str(error))
    except ValueError:
        return _page(request, 400, "There is no such format.")
    return _page(request, added=added)


def test(request: Request) -> Response:
    """Have a recorder send a test."""
    return _done(request, console.of(request).desk.webhooks.test)


def off(request: Request) -> Response:
    """Switch one off."""
    return _done(request, console.of(request).desk.webhooks.switch_off)


def on(request: Request) -> Response:
    """Switch one on."""
    return _done(request, console.of(request).desk.webhooks.switch_on)


def remove(request: Request) -> Response:
    """Remove one, whose name was typed."""
    name = request.path_params["name"]
    if request.state.form.get("typed", "").strip().lower() != name:
        return _page(request, 400, f"To remove {name}, type its name. Nothing was changed.")
    return _done(request, console.of(request).desk.webhooks.remove)


def _done(request: Request, act: Callable[[str, str], object]) -> Response:
    try:
        act(request.path_params["name"], console.asking(request).name)
    except WebhookRefused as error:
        return _page(request, 409, str(error))
    return RedirectResponse(HERE, 303)


def _page(request: Request, status: int = 200, trouble: str = "", added: Added | None = None) -> Response:
    here = console.of(request)
    return here.page(
        request,
        "webhooks.html",
        status,
        webhooks=here.desk.webhooks.all(),
        abouts=_ABOUTS,
        formats=_FORMATS,
        trouble=trouble,
        added=added,
        address=here.desk.settings.environment.DEADLETTERS_CONSOLE_URL,
        typed=request.state.form if trouble and request.method == "POST" else {},
    )


#: What can be ticked, in words.
_ABOUTS: Final = (
    (About.NEW, "a new group"),
    (About.REGRESSION, "a regression"),
    (About.GROWTH, "a group that grows"),
    (About.HALT, "a topic that is halted"),
    (About.BREAKER, "a dependency that is held to be down"),
)
_FORMATS: Final = (
    (Format.STANDARD, "Standard Webhooks, signed"),
    (Format.SLACK, "Slack (incoming webhook)"),
    (Format.PAGERDUTY, "PagerDuty (Events API v2)"),
)
