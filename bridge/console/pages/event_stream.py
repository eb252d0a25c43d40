"""The server-sent events of live pages: a line here for each page that has live parts."""

from collections.abc import Callable
from functools import partial
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from bridge.console import console
from bridge.console.auth import authentication
from bridge.console.auth.authorization import Principal
from bridge.console.console import Console
from bridge.console.live_snapshot import LiveSnapshot
from bridge.console.pages import handler_page, letters_page, overview_page, plans_page, topic_page
from bridge.console.thread_pools import WaitKind
from bridge.deadletters.masking.letter_mask import LetterMasks

#: The subjects, by the prefix of their names; each raises if the subject does not exist.
LIVE_SUBJECTS: Final[dict[str, Callable[[Console, str], Callable[[], LiveSnapshot]]]] = {
    "overview": overview_page.watch_overview,
    "topic": topic_page.watch_topic,
    "handler": handler_page.watch_handler,
}
#: The subjects with content of letters, which not every role sees.
MASKED_SUBJECTS: Final[dict[str, Callable[[Console, str, LetterMasks], Callable[[], LiveSnapshot]]]] = {
    "letters": letters_page.watch_letters,
    "plan": plans_page.watch_plan,
}


def stream_events(request: Request) -> Response:
    """Stream the live parts of the page that `of` names, such as `plan-118`, for a minute."""
    of, here = request.query_params.get("of", ""), console.get_console(request)
    kind, _, rest = of.partition("-")
    masks = console.get_masks(request)
    if kind in MASKED_SUBJECTS:
        make, waits = MASKED_SUBJECTS[kind](here, rest, masks), WaitKind.DATABASE
    elif kind in LIVE_SUBJECTS:
        make, waits = LIVE_SUBJECTS[kind](here, rest), WaitKind.STANDING
    else:
        raise HTTPException(404)
    # The status of the group is read every three seconds (bridge/console/status_cache.py); a wave can end within one.
    pace = 1.0 if kind == "plan" else 2.0
    # Nginx would buffer events.
    headers = {"x-accel-buffering": "no"}
    # Viewers who see the same share a snapshot.
    name = f"{of} masked" if masks else of
    goes_on = partial(_is_same_session, request, console.get_principal(request), masks)
    events = here.live.stream(name, make, pace, waits, goes_on, release=console.compute_release())
    return StreamingResponse(events, media_type="text/event-stream", headers=headers)


def _is_same_session(request: Request, who: Principal, masks: LetterMasks) -> bool:
    """Return whether the session is still valid, with the same role and the same masks."""
    here = console.get_console(request)
    return authentication.authenticate(here, request) == who and here.masking.of_who(who) == masks
