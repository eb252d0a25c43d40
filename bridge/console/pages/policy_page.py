"""The page of a handler policy: the policy in force, its history, and a change of it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from bridge.console import console
from bridge.console.decision_audit import list_durability_warnings
from bridge.console.pages.form_submission import note_decided, require_why
from bridge.errors import PolicyRefused
from bridge.formats import group_decision
from bridge.inspection import handler_policy as commands


def show_policy_form(request: Request) -> Response:
    """Show the policy, with the form that changes an option."""
    return _render_policy_form(request, 200)


def change_policy(request: Request) -> Response:
    """Set an option, or return to the value in the code."""
    desk, given = console.get_console(request).desk, request.state.form
    said, name, by = require_why(request), request.path_params["name"], console.get_principal(request).name
    option, value = given.get("option", "").strip(), given.get("value", "").strip()
    if given.get("seen", "") != build_policy_version(latest := _read_history(request)[:1]):
        if latest and _is_same_change(latest[0], option, "" if given.get("unset") else value, said, by):
            return _redirect_to_policy(name)
        return _render_policy_form(request, 409)
    if given.get("unset"):
        words = f"unset {option} of {name}: {said}"
        return _decide_policy(
            request,
            words,
            lambda: commands.unset_policy(desk.app, desk.settings, desk.routes, name, [option], said, by),
        )
    words = f"{option}={value} of {name}: {said}"
    return _decide_policy(
        request,
        words,
        lambda: commands.set_policy(desk.app, desk.settings, desk.routes, name, [f"{option}={value}"], said, by),
    )


def _decide_policy(request: Request, words: str, act: Callable[[], dict[str, Any]]) -> Response:
    try:
        found = act()
    except PolicyRefused as error:
        return _render_policy_form(request, 400, refused=str(error))
    note_decided(request, "policy", words)
    told = [*list_durability_warnings(found), *(f"{topic}: {fault}" for topic, fault in found["tiers"].items())]
    if told:
        return _render_policy_form(request, 200, told=told)
    return _redirect_to_policy(request.path_params["name"])


def build_policy_version(history: Sequence[Mapping[str, Any]]) -> str:
    """Return the version of a policy that a user saw: its last change."""
    return f"{history[0]['at']} {history[0]['by']} {history[0]['why']}" if history else ""


def _is_same_change(last: Mapping[str, Any], option: str, value: str, said: str, by: str) -> bool:
    """Return whether the last change is the requested one: the form was sent twice."""
    done = option in (last["set"] if value else last["unset"])
    return done and (last["why"], last["by"]) == (said, by)


def _read_history(request: Request) -> Sequence[Mapping[str, Any]]:
    desk = console.get_console(request).desk
    return commands.read_policy_history(desk.settings, desk.routes, request.path_params["name"])


def _redirect_to_policy(name: str) -> Response:
    return RedirectResponse(f"/handlers/{quote(name, safe='')}/policy", 303)


def _render_policy_form(request: Request, status: int, refused: str = "", told: Sequence[str] = ()) -> Response:
    asked, name = console.get_console(request), request.path_params["name"]
    desk = asked.desk
    found, history = commands.read_policy(desk.app, desk.settings, desk.routes, name)
    return asked.page(
        request,
        "policy.html",
        status,
        name=name,
        found=found,
        word=group_decision.format_option_value,
        words=group_decision.format_options,
        history=history,
        seen=build_policy_version(history),
        quicker=history[0] if status == 409 and history else None,
        refused=refused,
        told=told,
    )
