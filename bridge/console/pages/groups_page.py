"""The pages of failure groups: the list, one group, common properties, fixed version, notes."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final
from urllib.parse import urlencode

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from bridge.console import console, filter_address
from bridge.console.confirmation import UndoForm
from bridge.console.decision_audit import build_group_version
from bridge.console.pages import charts
from bridge.console.pages.form_submission import MAX_NOTE, answer_done, check_length, submit_once
from bridge.deadletters.dead_letter_service import DeadLetterService
from bridge.deadletters.inspection.advice import LOOK_AT_GROUP
from bridge.deadletters.inspection.failure_groups import (
    FixedCause,
    GroupOrder,
    GroupState,
    RankedGroup,
    explain_group_change,
)
from bridge.deadletters.inspection.group_details import MainCauses, replace_newest_letters
from bridge.deadletters.masking.letter_mask import LetterMasks
from bridge.deadletters.model.letter_filter import LetterFilter
from bridge.deadletters.model.stored_letter import LetterStatus
from bridge.deadletters.model.trait_comparison import LetterTrait
from bridge.errors import FilterFault, GroupChanged, NoSuchGroup
from bridge.formats.text_forms import format_count

#: The groups of a page.
LIST_ROWS: Final = 50
#: The causes of a group in the list; the others are counted.
LIST_CAUSES: Final = 3
#: The choices of groups to show.
GROUP_FILTERS: Final = ("with open letters", "all", "marked as fixed", "come back")
#: The orders of the list, in words; the first one is the default.
GROUP_SORTS: Final = {
    GroupOrder.OPEN: "most open letters",
    GroupOrder.NEED: "most urgent",
    GroupOrder.COUNT: "most letters ever",
    GroupOrder.NEWEST: "last seen",
    GroupOrder.FIRST: "first seen, the latest first",
    GroupOrder.NAME: "name",
}


def list_groups(request: Request) -> Response:
    """List the groups that match a filter, by default those with open letters, most open letters first."""
    here, query = console.get_console(request), request.query_params
    show, order = query.get("show", GROUP_FILTERS[0]), _read_order(query.get("sort", ""))
    given = console.get_masks(request).check(filter_address.read_filter(query))
    wanted = replace(given, statuses=(LetterStatus.OPEN,)) if show == GROUP_FILTERS[0] and not given.statuses else given
    words = query.get("place", "").lower().split()
    found = [each for each in here.desk.groups.ranked(wanted, order) if _is_shown(each, show, words)]
    first, some = _select_page(found, order, query.get("before"))
    ids = [each.id for each in some]
    stand = here.desk.standings.read_standings(here.desk.groups.read_groups(ids))
    return here.page(
        request,
        "groups.html",
        not_recorded=here.recorders().said(),
        stand=stand.groups,
        causes=_list_causes(request, ids),
        count=len(found),
        first=first,
        before=_build_page_address(query, found, order, first - LIST_ROWS) if first else None,
        after=_build_page_address(query, found, order, first + LIST_ROWS) if first + LIST_ROWS < len(found) else None,
        trouble=stand.trouble,
        show=show,
        shows=GROUP_FILTERS,
        order=order,
        sorts={
            each: (words, filter_address.build_address("/groups", query, sort=each, before=""))
            for each, words in GROUP_SORTS.items()
        },
        query=query,
        usual=LOOK_AT_GROUP.why,
        charts=charts,
        command=filter_address.build_command("groups", query),
    )


def _read_order(text: str) -> GroupOrder:
    return next((order for order in GROUP_SORTS if order == text), GroupOrder.OPEN)


def _list_causes(request: Request, ids: Sequence[int]) -> dict[int, MainCauses]:
    """Return the main causes of each group, with the fields masked that the user may not see."""
    desk = console.get_console(request).desk
    found = desk.causes.read_main_causes(ids, LIST_CAUSES)
    lines = desk.lists(console.get_masks(request)).lines(
        cause.newest for each in found.values() for cause in each.shown
    )
    # One reading of the database for all groups; their lines come back in the same order.
    masked = iter(lines)
    return {
        id_: each._replace(shown=tuple(replace_newest_letters(each.shown, [*islice(masked, len(each.shown))])))
        for id_, each in found.items()
    }


def _select_page(
    found: Sequence[RankedGroup], order: GroupOrder, before: str | None
) -> tuple[int, Sequence[RankedGroup]]:
    """Return the number of groups before a page, and the groups of the page.

    Parameters:
        before: the position at which the previous page ended; that group may have moved or be gone.
    """
    at = _read_position(before or "", found, order)
    if at is None:
        return 0, found[:LIST_ROWS]
    first = sum((each.by(order) <= at) if order.ascends else (each.by(order) >= at) for each in found)
    return first, found[first : first + LIST_ROWS]


def _read_position(text: str, found: Sequence[RankedGroup], order: GroupOrder) -> tuple[int | str, ...] | None:
    """Return a position in the list; `None` if the text is none of this order."""
    try:
        position = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not found or not isinstance(position, list):
        return None
    kinds = [type(part) for part in found[0].by(order)]
    return tuple(position) if [type(part) for part in position] == kinds else None


def _build_page_address(query: QueryParams, found: Sequence[RankedGroup], order: GroupOrder, first: int) -> str:
    """Return the address of the page after so many groups."""
    position = json.dumps(found[first - 1].by(order), separators=(",", ":")) if first > 0 else ""
    return filter_address.build_address("/groups", query, before=position)


def _is_shown(group: RankedGroup, show: str, words: Sequence[str]) -> bool:
    if show == "marked as fixed" and not group.is_fixed:
        return False
    if show == "come back" and not group.came_back:
        return False
    text = f"{group.handler} {group.error_class} {group.place}".lower()
    return all(word in text for word in words)


def show_group(request: Request) -> Response:
    """Show a group and its newest letters."""
    here = console.get_console(request)
    group = here.desk.groups.one(request.path_params["id"])
    newest = here.desk.letters.page(LetterFilter(groups=(group.id,)), 10).letters
    stand = here.desk.standings.read_standings([group])
    lists, causes = here.desk.lists(console.get_masks(request)), here.desk.causes.read_causes([group.id])[group.id]
    return here.page(
        request,
        "group.html",
        not_recorded=here.recorders().said(),
        group=group,
        around=stand.groups[0].around,
        next=stand.groups[0].next,
        trouble=stand.trouble,
        versions=here.desk.versions.read_versions(group),
        again=here.desk.standings.died_again(group),
        letters=lists.lines(newest),
        act=build_group_version,
        causes=replace_newest_letters(causes, lists.lines(each.newest for each in causes)),
        trail=here.desk.notes.of_group(group.id),
        charts=charts,
    )


def show_common(request: Request) -> Response:
    """Show what sets the letters of a group apart from what was handled, and from others; it is counted on request."""
    here = console.get_console(request)
    group = here.desk.groups.one(request.path_params["id"])
    masks = console.get_masks(request)
    found = here.desk.common(masks).find_traits(group, here.desk.handled)
    links = [address_group_trait(group.id, trait, masks) for trait in found.traits]
    return here.page(request, "common-traits.html", group=group, found=found, links=links, masked=bool(masks))


def address_group_trait(group: int, trait: LetterTrait, masks: LetterMasks) -> str | None:
    """Return the address of the letters with a trait; `None`: no filter means it, or the role may not search by it."""
    address = filter_address.address_trait(group, trait)
    try:
        masks.check(filter_address.read_filter(QueryParams((address or "").partition("?")[2])))
    except FilterFault:
        return None
    return address


def show_fixed_form(request: Request) -> Response:
    """Show the form that marks a group as fixed in a version, with the consequences."""
    return _render_fixed_form(
        request,
        _read_group(request),
        _cause(request.query_params),
        typed=console.get_typed_values(request).get("version", ""),
    )


def mark_fixed(request: Request) -> Response:
    """Mark a group as fixed: its letters are replayed once all workers have that version."""
    said, who, group = request.state.form, console.get_principal(request).name, _read_group(request)
    version, cause = said.get("version", "").strip(), _cause(said)
    now = _marked(group, cause)
    if version and (now.fixed_in, now.fixed_by) == (version, who):
        return _answer_marked(request, group.id, cause, version)
    if said.get("act", "") != build_group_version(now):
        return _render_fixed_form(request, group, cause, 409, str(explain_group_change(now)), version)
    try:
        console.get_console(request).desk.groups.fixed(group.id, version, who, group, cause=cause)
    except GroupChanged as error:
        return _render_fixed_form(request, _read_group(request), cause, 409, str(error), version)
    except FilterFault as error:
        return _render_fixed_form(request, group, cause, 400, str(error), version)
    return _answer_marked(request, group.id, cause, version)


def _answer_marked(request: Request, id_: int, cause: str | None, version: str) -> Response:
    of_cause = {} if cause is None else {"cause": cause}
    fields = {"act": build_group_version(_marked(_read_group(request), cause)), **of_cause}
    undo = UndoForm("Take the mark back", f"/groups/{id_}/not-fixed", fields)
    what = f"group {id_}" if cause is None else f"a cause of group {id_}"
    return answer_done(request, f"/groups/{id_}", f"Marked {what} as fixed in {version}.", undo)


def show_fixed_groups(request: Request) -> Response:
    """Show the form that marks several groups as fixed in a version."""
    return _render_fixed_groups(request, filter_address.read_group_ids(request.query_params))


def mark_groups_fixed(request: Request) -> Response:
    """Mark several groups as fixed, all or none: a conflict shows the form again with what was typed."""
    here, form, who = console.get_console(request), request.state.form, console.get_principal(request).name
    ids, version = filter_address.read_group_ids(form), form.get("version", "").strip()
    unmarked = [
        group for group in here.desk.groups.read_groups(ids) if (group.fixed_in, group.fixed_by) != (version, who)
    ]
    changed = [group for group in unmarked if form.get(f"act-{group.id}", "") != build_group_version(group)]
    try:
        if changed:
            raise GroupChanged(f"Group {changed[0].id}: {explain_group_change(changed[0])}")
        here.desk.groups.fixed_together(unmarked, version, who)
    except GroupChanged as error:
        return _render_fixed_groups(request, ids, 409, str(error))
    except FilterFault as error:
        return _render_fixed_groups(request, ids, 400, str(error))
    said = f"Marked {format_count(len(ids), 'group')} as fixed in {version}."
    return answer_done(request, f"/groups?{urlencode({'show': GROUP_FILTERS[2]})}", said)


def _render_fixed_groups(request: Request, ids: Sequence[int], status: int = 200, trouble: str = "") -> Response:
    here = console.get_console(request)
    stand = here.desk.standings.read_standings(here.desk.groups.read_groups(ids))
    if not stand.groups:
        raise NoSuchGroup("There is none of these groups any more: their letters were cleaned up after their end.")
    return here.page(
        request,
        "fixed-groups.html",
        status,
        stand=stand.groups,
        links=[f"group={each.group.id}" for each in stand.groups],
        act=build_group_version,
        trouble=trouble,
        changed=status == 409,
        versions=sorted({version for each in stand.groups for version in each.around.running if version}),
    )


def unmark_fixed(request: Request) -> Response:
    """Take the mark back if it is unchanged; a conflict shows the same question again, never the opposite."""
    group, cause = _read_group(request), _cause(request.state.form)
    now = _marked(group, cause)
    if now.fixed_in is not None:
        if request.state.form.get("act", "") != build_group_version(now):
            return _render_fixed_form(request, group, cause, 409, str(explain_group_change(now)), undoes=True)
        try:
            console.get_console(request).desk.groups.not_fixed(
                group.id, console.get_principal(request).name, group, cause=cause
            )
        except GroupChanged as error:
            if _marked(group := _read_group(request), cause).fixed_in is not None:
                return _render_fixed_form(request, group, cause, 409, str(error), undoes=True)
    undo = None
    if now.fixed_in is not None:
        of_cause = {} if cause is None else {"cause": cause}
        act = build_group_version(_marked(_read_group(request), cause))
        fields = {"act": act, "version": now.fixed_in, **of_cause}
        undo = UndoForm(f"Mark it as fixed in {now.fixed_in} again", f"/groups/{group.id}/fixed", fields)
    return answer_done(request, f"/groups/{group.id}", f"Group {group.id} is not marked as fixed any more.", undo)


def note_on_group(request: Request) -> Response:
    """Add a note to a group, which is shown with each of its letters."""
    group, said = _read_group(request), check_length(request.state.form.get("said", ""), MAX_NOTE)
    if not said:
        raise FilterFault("There is nothing to note.")
    who = console.get_principal(request).name
    submit_once(request, lambda desk: _add_note(desk, group.id, said, who))
    return answer_done(request, f"/groups/{group.id}#h-trail", f"Noted on group {group.id}.")


def _add_note(desk: DeadLetterService, group: int, said: str, who: str) -> int:
    desk.notes.on_group(group, said, who)
    return group


def _read_group(request: Request) -> GroupState:
    return console.get_console(request).desk.groups.one(request.path_params["id"])


def _cause(said: Mapping[str, str]) -> str | None:
    """Return the id of the cause in the request, or `None` for the whole group."""
    return said.get("cause", "")[:12] or None


def _marked(group: GroupState, cause: str | None) -> GroupState | FixedCause:
    return group if cause is None else group.fix_of(cause)


def _render_fixed_form(
    request: Request,
    group: GroupState,
    cause: str | None,
    status: int = 200,
    trouble: str = "",
    typed: str = "",
    *,
    undoes: bool = False,
) -> Response:
    here = console.get_console(request)
    now = _marked(group, cause)
    return here.page(
        request,
        "fixed-version.html",
        status,
        group=group,
        cause=cause,
        marked=now,
        act=build_group_version(now),
        trouble=trouble,
        changed=status == 409,
        typed=typed,
        undoes=undoes,
        versions=here.desk.versions.read_versions(group),
    )
