"""A group, or a cause of it, marked as fixed in a version, or not any more; and what people note on it."""

from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from bridge.deadletters.desk import Desk
from bridge.deadletters.questions.groups import CauseFix, Grouped, changed
from bridge.errors import FilterFault, GroupChanged
from bridge.web import console
from bridge.web.deciding import act
from bridge.web.pages.deciding import NOTE, limited
from bridge.web.pages.once import once


def form(request: Request) -> Response:
    """In which version it is fixed, and what that will do."""
    return _form(
        request, _group(request), _cause(request.query_params), typed=console.typed(request).get("version", "")
    )


def mark(request: Request) -> Response:
    """Mark it: its letters go back by themselves once all workers have that version."""
    said, who, group = request.state.form, console.asking(request).name, _group(request)
    version, cause = said.get("version", "").strip(), _cause(said)
    now = _marked(group, cause)
    there = RedirectResponse(f"/groups/{group.id}", 303)
    if version and (now.fixed_in, now.fixed_by) == (version, who):
        return there
    if said.get("act", "") != act(now):
        return _form(request, group, cause, 409, str(changed(now)), version)
    try:
        console.of(request).desk.groups.fixed(group.id, version, who, group, cause=cause)
    except GroupChanged as error:
        return _form(request, _group(request), cause, 409, str(error), version)
    except FilterFault as error:
        return _form(request, group, cause, 400, str(error), version)
    return there


def unmark(request: Request) -> Response:
    """Take that back, where it is still the same; a conflict asks for the same again, never for the opposite."""
    group, cause = _group(request), _cause(request.state.form)
    now = _marked(group, cause)
    if now.fixed_in is not None:
        if request.state.form.get("act", "") != act(now):
            return _form(request, group, cause, 409, str(changed(now)), undoes=True)
        try:
            console.of(request).desk.groups.not_fixed(group.id, console.asking(request).name, group, cause=cause)
        except GroupChanged as error:
            if _marked(group := _group(request), cause).fixed_in is not None:
                return _form(request, group, cause, 409, str(error), undoes=True)
    return RedirectResponse(f"/groups/{group.id}", 303)


def note(request: Request) -> Response:
    """Note something on it: it stands with each of its letters."""
    group, said = _group(request), limited(request.state.form.get("said", ""), NOTE)
    if not said:
        raise FilterFault("There is nothing to note.")
    who = console.asking(request).name
    once(request, lambda desk: _noted(desk, group.id, said, who))
    return RedirectResponse(f"/groups/{group.id}#h-trail", 303)


def _noted(desk: Desk, group: int, said: str, who: str) -> int:
    desk.notes.on_group(group, said, who)
    return group


def _group(request: Request) -> Grouped:
    return console.of(request).desk.groups.one(request.path_params["id"])


def _cause(said: Mapping[str, str]) -> str | None:
    """Return the id of the cause that is meant, or `None` for the whole group."""
    return said.get("cause", "")[:12] or None


def _marked(group: Grouped, cause: str | None) -> Grouped | CauseFix:
    return group if cause is None else group.fix_of(cause)


def _form(
    request: Request,
    group: Grouped,
    cause: str | None,
    status: int = 200,
    trouble: str = "",
    typed: str = "",
    *,
    undoes: bool = False,
) -> Response:
    here = console.of(request)
    now = _marked(group, cause)
    return here.page(
        request,
        "fixed.html",
        status,
        group=group,
        cause=cause,
        marked=now,
        act=act(now),
        trouble=trouble,
        changed=status == 409,
        typed=typed,
        undoes=undoes,
        versions=here.desk.versions.of(group),
    )
