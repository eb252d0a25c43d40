"""Halting a topic, and resuming it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from bridge.commands import halt as commands
from bridge.errors import UnknownTopic
from bridge.web import console, rows
from bridge.web.pages.deciding import decided, unsafe, why

#: Seconds to wait for how the topic stands: the form does not depend on it.
WITHIN = 0.5


def form(request: Request) -> Response:
    """How the topic stands, and the form that halts it, or resumes it where it is halted."""
    return _form(request, 200, commands.halted(console.of(request).desk.settings).get(request.path_params["topic"]))


def halt(request: Request) -> Response:
    """Halt it: nothing of it is read or run from now on."""
    said, desk = why(request), console.of(request).desk
    return _decide(
        request,
        f"halted {request.path_params['topic']}: {said}",
        lambda topic, by: commands.halt(desk.app, desk.settings, desk.routes, [topic], said, by),
    )


def resume(request: Request) -> Response:
    """Let it go on, from exactly where it stood."""
    said, desk = why(request), console.of(request).desk
    return _decide(
        request,
        f"resumed {request.path_params['topic']}: {said}",
        lambda topic, by: commands.resume(desk.app, desk.settings, desk.routes, [topic], said, by),
    )


def _decide(request: Request, said: str, act: Callable[[str, str], dict[str, Any]]) -> Response:
    """Do it, unless the topic does not stand any more as who decided has seen it."""
    topic, form = request.path_params["topic"], request.state.form
    stands = commands.halted(console.of(request).desk.settings).get(topic)
    if form.get("seen", "") != _seen(stands):
        return _form(request, 409, stands, typed=form.get("why", ""))
    found = act(topic, console.asking(request).name)["topics"][topic]
    decided(request, "halt" if found["halted"] else "resume", said)
    if told := unsafe(found):
        return _form(request, 200, found if found["halted"] else None, typed=form.get("why", ""), told=told)
    return RedirectResponse(f"/topics/{quote(topic, safe='')}/{'resume' if found['halted'] else 'halt'}", 303)


def _form(
    request: Request, status: int, halt: Mapping[str, Any] | None, typed: str = "", told: Sequence[str] = ()
) -> Response:
    asked, topic = console.of(request), request.path_params["topic"]
    if halt is None and topic not in asked.desk.routes.topics:
        raise UnknownTopic(f"No handler here names the topic {topic!r}, and it is not halted.")
    standing = asked.looking.latest(WITHIN)
    listed = [] if standing is None else rows.topics(asked.desk.routes, standing.status, None)
    return asked.page(
        request,
        "halt.html",
        status,
        topic=topic,
        halt=halt,
        seen=_seen(halt),
        typed=typed,
        quicker=status == 409,
        told=told,
        row=next((row for row in listed if row.name == topic), None),
    )


def _seen(halt: Mapping[str, Any] | None) -> str:
    """A halt as a form tells it from another of the same topic."""
    return "" if halt is None else f"{halt['since']} {halt['by']} {halt['why']}"
