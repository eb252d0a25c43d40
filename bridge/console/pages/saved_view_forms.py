"""The saved views of the list of letters: their links, and the forms that save and remove one."""

from typing import NamedTuple
from urllib.parse import urlencode

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from bridge.console import console, filter_address
from bridge.deadletters.accounts.saved_view import EVERYBODY
from bridge.deadletters.db.saved_view_rows import SavedView
from bridge.deadletters.masking.letter_mask import LetterMasks
from bridge.errors import FilterFault


class ViewLink(NamedTuple):
    """A saved view as a link.

    Attributes:
        is_shown: whether the list shows it now.
        is_removable: whether this user may remove it.
        is_shared: whether it is for all users.
    """

    id: int
    name: str
    address: str
    is_shown: bool
    is_removable: bool
    is_shared: bool


def list_view_links(request: Request, query: QueryParams) -> list[ViewLink]:
    """Return the views of a user: their own, and those for all by which they may search.

    Parameters:
        query: the filter of the list.
    """
    who, masks = console.get_principal(request), console.get_masks(request)
    shown = _list_pairs(query)
    return [
        ViewLink(
            view.id,
            view.name,
            f"/letters?{urlencode(view.fields)}",
            _list_pairs(QueryParams(list(view.fields))) == shown,
            view.owner == who.name or who.is_admin,
            view.owner == EVERYBODY,
        )
        for view in console.get_console(request).desk.views.of(who.name)
        if view.owner == who.name or _may_search(view, masks)
    ]


def save_view(request: Request) -> Response:
    """Save the filter of a list as a view, of the user or, by an admin, of all."""
    form, who = request.state.form, console.get_principal(request)
    console.get_masks(request).check(filter_address.read_filter(form))
    fields = filter_address.list_filter_fields(form)
    owner = EVERYBODY if form.get("shared") and who.is_admin else who.name
    console.get_console(request).desk.views.save(owner, form.get("view", ""), fields)
    return RedirectResponse(f"/letters?{urlencode(fields)}", 303)


def remove_view(request: Request) -> Response:
    """Remove a view of the user; an admin also removes those for all."""
    who = console.get_principal(request)
    owners = [who.name, EVERYBODY] if who.is_admin else [who.name]
    console.get_console(request).desk.views.remove(request.path_params["id"], owners)
    query = urlencode(filter_address.list_filter_fields(request.state.form))
    return RedirectResponse(f"/letters?{query}", 303)


def _list_pairs(query: QueryParams) -> list[tuple[str, str]]:
    return sorted(filter_address.list_filter_fields(filter_address.add_open_status(query)))


def _may_search(view: SavedView, masks: LetterMasks) -> bool:
    """Return whether a role may search by a view: its address would tell what others looked for in masked fields."""
    try:
        masks.check(filter_address.read_filter(QueryParams(list(view.fields))))
    except FilterFault:
        return False
    return True
