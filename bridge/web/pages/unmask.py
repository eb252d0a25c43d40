"""What is masked, seen by an admin for a while: with a reason, and in the trail."""

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from bridge.web import console
from bridge.web.origins import way
from bridge.web.pages.deciding import why

#: In the trail.
WHAT = "unmask"


def form(request: Request) -> Response:
    """What it means, and the reason that it takes."""
    _check(request)
    return console.of(request).page(request, "unmask.html", then=way(request.query_params.get("then", "")))


def lift(request: Request) -> Response:
    """See it for 15 minutes. The trail has it first: without that nothing is shown."""
    _check(request)
    here, who = console.of(request), console.asking(request)
    here.desk.trail.add(who.name, WHAT, f"sees for 15 minutes what is masked: {why(request)}")
    here.masking.lift(who)
    return RedirectResponse(way(request.state.form.get("then", "")), 303)


def put_back(request: Request) -> Response:
    """Mask it again."""
    console.of(request).masking.put_back(console.asking(request))
    return RedirectResponse(way(request.state.form.get("then", "")), 303)


def _check(request: Request) -> None:
    masking, who = console.of(request).masking, console.asking(request)
    if masking.masks and not masking.may_be_lifted:
        raise HTTPException(403, "Nothing is unmasked here: DEADLETTERS_UNMASK is no.")
    if not masking.of_role(who.role):
        raise HTTPException(409, "Nothing is masked for you.")
