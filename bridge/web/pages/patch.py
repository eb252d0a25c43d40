"""A JSON Patch over letters: tried on the newest of them as one types, and planned over all."""

from typing import Final, NamedTuple

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from bridge.deadletters.letters.filters import Filter
from bridge.deadletters.mending.mending import Sample
from bridge.deadletters.mending.patching import Patch
from bridge.errors import EditRefused, FilterFault, PatchRefused
from bridge.web import asked, console, patching
from bridge.web.console import Console
from bridge.web.differing import Row, rows
from bridge.web.pages.deciding import WHY, limited
from bridge.web.pages.once import once

#: Letters on which it is tried.
TRIED: Final = 3
#: Characters of a value that is shown beside the patch.
SHOWN: Final = 4_000


class Tried(NamedTuple):
    """What a patch makes of one letter."""

    sample: Sample
    rows: list[Row]


def form(request: Request) -> Response:
    """The patch, to be written: beside it the newest letter as it is."""
    return _page(request, request.query_params)


def check(request: Request) -> Response:
    """What the patch makes of the newest letters: the parts of the page that a script puts into their places."""
    here, said = console.of(request), request.state.form
    tried, fault = _tried(request, said)
    count = here.desk.letters.count(_letters(request, said))
    return here.page(request, "patch-checked.html", tried=tried, fault=fault, count=count)


def make(request: Request) -> Response:
    """Try it, or freeze what it makes of all of them, and go on to where that is decided on."""
    said = request.state.form
    if said.get("do") == "check":
        return _page(request, said)
    masks, who = console.masks(request), console.asking(request).name
    wish = patching.Wish(_letters(request, said), _patch(said), limited(said.get("why", ""), WHY), "force" in said)
    try:
        made = once(request, lambda desk: patching.planned(desk, masks, who, wish).id)
    except (PatchRefused, FilterFault) as error:
        return _page(request, said, str(error), 400)
    return RedirectResponse(f"/plans/{made}", 303)


def _letters(request: Request, said: QueryParams) -> Filter:
    """The open letters that are meant, of which somebody sees all.

    Raises:
        FilterFault: they are none that are open, or not to be seen whole.
    """
    masks = console.masks(request)
    wanted = masks.check(asked.read(asked.with_status(said))).only_open()
    masks.whole(wanted.topics, "patch")
    if unknown := console.of(request).desk.absent.of(wanted):
        raise FilterFault(" ".join(unknown))
    return wanted


def _patch(said: QueryParams) -> str:
    return said.get("patch", "").strip()


def _tried(request: Request, said: QueryParams) -> tuple[list[Tried], str]:
    """What it makes of the newest letters; and what is wrong with it, where it is no patch."""
    desk, text = console.of(request).desk, _patch(said)
    if not text:
        return [], ""
    try:
        patch = Patch.read(text)
    except PatchRefused as error:
        return [], str(error)
    newest = desk.letters.page(_letters(request, said), TRIED).letters
    found = desk.mending.samples([each.id for each in newest], patch)
    return [Tried(each, rows(each.difference)) for each in found], ""


def _page(request: Request, said: QueryParams, refused: str = "", status: int = 200) -> Response:
    here, typed = console.of(request), console.typed(request)
    wanted = _letters(request, said)
    tried, fault = _tried(request, typed)
    newest = here.desk.letters.page(wanted, 1).letters
    return here.page(
        request,
        "patch.html",
        status,
        fields=asked.fields(asked.with_status(said)),
        count=here.desk.letters.count(wanted),
        newest=newest[0] if newest else None,
        value=_value(here, newest[0].id) if newest else "",
        tried=tried,
        fault=refused or fault,
        list=asked.address("/letters", QueryParams(asked.fields(said))),
        command=f"{asked.command('replay', said)} --patch patch.json",
    )


def _value(here: Console, letter: int) -> str:
    """A letter's value as text; or why there is none."""
    try:
        text = here.desk.mending.offered(letter).text
    except EditRefused:
        return "Its value is no text, or too large: no patch applies to it."
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}\n… {len(text) - SHOWN:,} more characters"
