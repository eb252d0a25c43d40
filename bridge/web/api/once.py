"""What acts, done once: the same key and the same request have the same answer, whichever console is asked."""

import hashlib
import json
import logging
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from starlette.responses import Response

from bridge.deadletters.store.requests import Claim
from bridge.deadletters.users.requests import Answered
from bridge.errors import BridgeError, DeskUnavailable, RequestRefused
from bridge.web.api.asked import Answer, Asked
from bridge.web.api.operations import Operation
from bridge.web.api.problems import of_error, response

logger = logging.getLogger("bridge")

_KEY: Final = re.compile(r"[\x21-\x7e]{1,255}")
#: What the same request may be answered otherwise a moment later: not kept.
_PASSING: Final = ("under-way", "unavailable", "fault")
REPLAYED: Final = "idempotency-replayed"


def once(
    operation: Operation, asked: Asked, key: str | None, wish: bytes, written: Callable[[Answer], Response]
) -> Response:
    """Do it, or answer as when it was done.

    Parameters:
        wish: what tells this request from others.
        written: an answer as it is sent.

    Raises:
        BridgeError: it was not done.
    """
    if key is None or not _KEY.fullmatch(key):
        raise RequestRefused(
            "key-missing",
            "What acts wants the header Idempotency-Key: a new one for each wish, the same one to ask again; 1 to 255 "
            "characters of ASCII, without spaces. Nothing was done.",
        )
    digest = hashlib.sha256(f"{asked.who.token} {key}".encode()).digest()
    begun = asked.desk.requests.begin(digest, hashlib.sha256(wish).digest())
    if isinstance(begun, Answered):
        return _again(begun)
    mine = replace(asked, desk=asked.desk.doing(begun.claim))
    try:
        act = operation.act
        done = begun.done if act and act.again else None
        answer = act.again(mine, done) if act and act.again and done else operation.answer(mine)
        answered = written(answer)
    except BridgeError as error:
        refused = of_error(error)
        if refused.name in _PASSING:
            _leave(asked, begun.claim)
            raise
        answered = response(refused)
    except BaseException:
        _leave(asked, begun.claim)
        raise
    _keep(asked, begun.claim, answered)
    return answered


def _again(answered: Answered) -> Response:
    said = json.loads(answered.answer)
    return Response(said["body"], answered.status, {**said["headers"], REPLAYED: "true"})


def _keep(asked: Asked, claim: Claim, made: Response) -> None:
    kept = {name: value for name, value in made.headers.items() if name != "content-length"}
    answer = json.dumps({"headers": kept, "body": bytes(made.body).decode()})
    try:
        asked.desk.requests.answered(claim, made.status_code, answer)
    except DeskUnavailable as error:
        # It is done, and noted with the act: who asks again hears of it.
        logger.warning("the answer to a request is not kept: %s", error)


def _leave(asked: Asked, claim: Claim) -> None:
    try:
        asked.desk.requests.leave(claim)
    except DeskUnavailable as error:
        logger.warning("a request is left for who asks again in two minutes: %s", error)
