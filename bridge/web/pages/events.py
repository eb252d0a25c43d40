"""The live parts of pages, as server-sent events: a line here for each page that has some."""

from collections.abc import Callable
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from bridge.web import console
from bridge.web.console import Console
from bridge.web.live import Snapshot
from bridge.web.pages import overview, plan

#: What is looked at, by what its name begins with; raises where that is not there.
SUBJECTS: Final[dict[str, Callable[[Console, str], Callable[[], Snapshot]]]] = {
    "overview": overview.live,
    "plan": plan.live,
}


def answer(request: Request) -> Response:
    """A stream of what `of` names, `plan-118`; it ends when the browser goes, and after a minute."""
    of, here = request.query_params.get("of", ""), console.of(request)
    kind, _, rest = of.partition("-")
    if kind not in SUBJECTS:
        raise HTTPException(404)
    make = SUBJECTS[kind](here, rest)
    # Nginx would hold events back.
    headers = {"x-accel-buffering": "no"}
    events = here.live.stream(of, make, release=console.release())
    return StreamingResponse(events, media_type="text/event-stream", headers=headers)
