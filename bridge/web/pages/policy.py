"""A handler's policy: what is in force, who changed it, and changing it."""

from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from bridge.commands import policy as commands
from bridge.errors import PolicyRefused
from bridge.records import policies
from bridge.web import console
from bridge.web.pages.deciding import decided, unsafe, why


def form(request: Request) -> Response:
    """The policy, with the form that changes an option of it."""
    return _form(request, 200)


def change(request: Request) -> Response:
    """Set an option, or go back to what the code says."""
    desk, given = console.of(request).desk, request.state.form
    said, name, by = why(request), request.path_params["name"], console.asking(request).name
    option, value = given.get("option", "").strip(), given.get("value", "").strip()
    if given.get("unset"):
        words = f"unset {option} of {name}: {said}"
        return _decide(
            request,
            words,
            lambda: commands.unset_policy(desk.app, desk.settings, desk.routes, name, [option], said, by),
        )
    words = f"{option}={value} of {name}: {said}"
    return _decide(
        request,
        words,
        lambda: commands.set_policy(desk.app, desk.settings, desk.routes, name, [f"{option}={value}"], said, by),
    )


def _decide(request: Request, words: str, act: Callable[[], dict[str, Any]]) -> Response:
    try:
        found = act()
    except PolicyRefused as error:
        return _form(request, 400, refused=str(error))
    decided(request, "policy", words)
    told = [*unsafe(found), *(f"{topic}: {fault}" for topic, fault in found["tiers"].items())]
    if told:
        return _form(request, 200, told=told)
    return RedirectResponse(f"/handlers/{quote(request.path_params['name'], safe='')}/policy", 303)


def _form(request: Request, status: int, refused: str = "", told: Sequence[str] = ()) -> Response:
    asked, name = console.of(request), request.path_params["name"]
    desk = asked.desk
    found = commands.policies(desk.app, desk.settings, desk.routes, name)[name]
    return asked.page(
        request,
        "policy.html",
        status,
        name=name,
        found=found,
        word=policies.word,
        words=policies.words,
        history=commands.history(desk.settings, desk.routes, name),
        refused=refused,
        told=told,
        typed=getattr(request.state, "form", {}),
    )
