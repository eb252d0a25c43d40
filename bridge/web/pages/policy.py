"""A handler's policy: what is in force, who changed it, and changing it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from bridge.commands import policy as commands
from bridge.errors import PolicyRefused
from bridge.records import policies
from bridge.web import console
from bridge.web.deciding import unsafe
from bridge.web.pages.deciding import decided, why


def form(request: Request) -> Response:
    """The policy, with the form that changes an option of it."""
    return _form(request, 200)


def change(request: Request) -> Response:
    """Set an option, or go back to what the code says."""
    desk, given = console.of(request).desk, request.state.form
    said, name, by = why(request), request.path_params["name"], console.asking(request).name
    option, value = given.get("option", "").strip(), given.get("value", "").strip()
    if given.get("seen", "") != seen(latest := _history(request)[:1]):
        if latest and _is_this(latest[0], option, "" if given.get("unset") else value, said, by):
            return _back(name)
        return _form(request, 409)
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
    return _back(request.path_params["name"])


def seen(history: Sequence[Mapping[str, Any]]) -> str:
    """As what somebody has seen a policy who decides on it: the last that was done with it."""
    return f"{history[0]['at']} {history[0]['by']} {history[0]['why']}" if history else ""


def _is_this(last: Mapping[str, Any], option: str, value: str, said: str, by: str) -> bool:
    """Whether the last that was done is what is asked for once more: by a form that was sent twice."""
    done = option in (last["set"] if value else last["unset"])
    return done and (last["why"], last["by"]) == (said, by)


def _history(request: Request) -> Sequence[Mapping[str, Any]]:
    desk = console.of(request).desk
    return commands.history(desk.settings, desk.routes, request.path_params["name"])


def _back(name: str) -> Response:
    return RedirectResponse(f"/handlers/{quote(name, safe='')}/policy", 303)


def _form(request: Request, status: int, refused: str = "", told: Sequence[str] = ()) -> Response:
    asked, name = console.of(request), request.path_params["name"]
    desk = asked.desk
    found, history = commands.one(desk.app, desk.settings, desk.routes, name)
    return asked.page(
        request,
        "policy.html",
        status,
        name=name,
        found=found,
        word=policies.word,
        words=policies.words,
        history=history,
        seen=seen(history),
        quicker=history[0] if status == 409 and history else None,
        refused=refused,
        told=told,
    )
