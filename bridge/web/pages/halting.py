"""Halting a topic, and resuming it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from bridge.commands import halt as commands
from bridge.commands.unquoted import unquoted_halt
from bridge.deadletters.store.trail import Entry
from bridge.errors import UnknownTopic
from bridge.web import console, rows
from bridge.web.deciding import unsafe
from bridge.web.pages.deciding import decided, why

#: Seconds to wait for how the topic stands: the form does not depend on it.
WITHIN = 0.5


def form(request: Request) -> Response:
    """How the topic stands, and the form that does what the address says: it never turns into the other one."""
    halt = commands.halted(console.of(request).desk.settings).get(request.path_params["topic"])
    return _form(request, 200, halt, typed=console.typed(request).get("why", ""))


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
        if _is_mine(request, stands):
            return _there(topic, stands is not None)
        # The reason is asked again: what was typed is no answer to what somebody else has decided.
        return _form(request, 409, stands, unsent=form.get("why", ""))
    found = act(topic, console.asking(request).name)["topics"][topic]
    if found.get("changed", True):
        decided(request, "halt" if found["halted"] else "resume", said)
    if told := unsafe(found):
        return _form(request, 200, found if found["halted"] else None, typed=form.get("why", ""), told=told)
    return _there(topic, found["halted"])


def _is_mine(request: Request, stands: Mapping[str, Any] | None) -> bool:
    """Whether the topic stands as this form wants it, by who has sent it: it was sent twice."""
    topic, who, said = request.path_params["topic"], console.asking(request).name, why(request)
    if _halts(request):
        return stands is not None and (stands["by"], stands["why"]) == (who, said)
    last = _resumed(request, topic)
    return stands is None and last is not None and (last.by, last.said) == (who, f"resumed {topic}: {said}")


def _resumed(request: Request, topic: str) -> Entry | None:
    """Who has resumed it last in a console, of the latest of such entries."""
    found = console.of(request).desk.trail.page(what=("resume",)).entries
    return next((each for each in found if each.said.startswith(f"resumed {topic}:")), None)


def _there(topic: str, halted: bool) -> Response:
    return RedirectResponse(f"/topics/{quote(topic, safe='')}/{'resume' if halted else 'halt'}", 303)


def _halts(request: Request) -> bool:
    """Whether this address halts the topic; else it resumes it."""
    return request.url.path.endswith("/halt")


def _form(
    request: Request,
    status: int,
    halt: Mapping[str, Any] | None,
    typed: str = "",
    told: Sequence[str] = (),
    unsent: str = "",
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
        halt=unquoted_halt(halt) if halt is not None and console.masks(request).of(topic) else halt,
        halts=_halts(request),
        seen=_seen(halt),
        unsent=unsent,
        typed=typed,
        quicker=status == 409,
        resumed=_resumed(request, topic) if status == 409 and halt is None else None,
        told=told,
        silent={} if standing is None else standing.silent,
        row=next((row for row in listed if row.name == topic), None),
    )


def _seen(halt: Mapping[str, Any] | None) -> str:
    """A halt as a form tells it from another of the same topic; what a handler has said is not in it."""
    return "" if halt is None else f"{halt['since']} {halt['by']} {unquoted_halt(halt)['why']}"
