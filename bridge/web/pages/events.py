"""The live parts of pages, as server-sent events: a line here for each page that has some."""

from collections.abc import Callable
from functools import partial
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from bridge.deadletters.masking.masks import Masks
from bridge.web import console, knowing
from bridge.web.console import Console
from bridge.web.live import Snapshot
from bridge.web.pages import handler, letters, overview, plan, topic
from bridge.web.roles import Who
from bridge.web.threads import Waits

#: What is looked at, by what its name begins with; raises where that is not there.
SUBJECTS: Final[dict[str, Callable[[Console, str], Callable[[], Snapshot]]]] = {
    "overview": overview.live,
    "topic": topic.live,
    "handler": handler.live,
}
#: And of what there is something of letters, which not everybody sees.
MASKED: Final[dict[str, Callable[[Console, str, Masks], Callable[[], Snapshot]]]] = {
    "letters": letters.live,
    "plan": plan.live,
}


def answer(request: Request) -> Response:
    """A stream of what `of` names, `plan-118`; it ends when the browser goes, and after a minute."""
    of, here = request.query_params.get("of", ""), console.of(request)
    kind, _, rest = of.partition("-")
    masks = console.masks(request)
    if kind in MASKED:
        make, waits = MASKED[kind](here, rest, masks), Waits.DATABASE
    elif kind in SUBJECTS:
        make, waits = SUBJECTS[kind](here, rest), Waits.STANDING
    else:
        raise HTTPException(404)
    # The status of the group is read every third second (bridge/web/looking.py), a wave is over within one.
    pace = 1.0 if kind == "plan" else 2.0
    # Nginx would hold events back.
    headers = {"x-accel-buffering": "no"}
    # One snapshot is for all who see the same.
    name = f"{of} masked" if masks else of
    goes_on = partial(_goes_on, request, console.asking(request), masks)
    events = here.live.stream(name, make, pace, waits, goes_on, release=console.release())
    return StreamingResponse(events, media_type="text/event-stream", headers=headers)


def _goes_on(request: Request, who: Who, masks: Masks) -> bool:
    """Whether the session is what it was when the stream began: not ended, in the same role, and seeing as much."""
    here = console.of(request)
    return knowing.who(here, request) == who and here.masking.of_who(who) == masks
