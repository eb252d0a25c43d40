"""Idempotency keys of the API: the same key and request have the same answer at every console."""

import hashlib
import json
import logging
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from starlette.responses import Response

from bridge.console.api.api_operation import ApiAnswer, Operation
from bridge.console.api.api_request import ApiRequest
from bridge.console.api.problem_details import build_problem_response, convert_error
from bridge.deadletters.accounts.idempotency_key import AnsweredRequest
from bridge.deadletters.db.audit_rows import RequestClaim
from bridge.errors import BridgeError, DeskUnavailable, RequestRefused

logger = logging.getLogger("bridge")

_KEY_FORM: Final = re.compile(r"[\x21-\x7e]{1,255}")
#: Temporary failures, which are not kept: the same request may succeed a moment later.
_TRANSIENT: Final = ("under-way", "unavailable", "fault")
REPLAYED_HEADER: Final = "idempotency-replayed"


def answer_once(
    operation: Operation, asked: ApiRequest, key: str | None, wish: bytes, written: Callable[[ApiAnswer], Response]
) -> Response:
    """Carry out a request, or repeat the answer of an earlier one with the same key.

    Parameters:
        wish: the bytes that identify the request.
        written: encodes an answer as it is sent.

    Raises:
        BridgeError: the request was not carried out.
    """
    if key is None or not _KEY_FORM.fullmatch(key):
        raise RequestRefused(
            "key-missing",
            "What acts wants the header Idempotency-Key: a new one for each wish, the same one to ask again; 1 to 255 "
            "characters of ASCII, without spaces. Nothing was done.",
        )
    digest = hashlib.sha256(f"{asked.who.token} {key}".encode()).digest()
    begun = asked.desk.requests.begin(digest, hashlib.sha256(wish).digest())
    if isinstance(begun, AnsweredRequest):
        return _replay_answer(begun)
    mine = replace(asked, desk=asked.desk.doing(begun.claim), done=begun.done)
    try:
        again = operation.act.again if operation.act and begun.done else None
        answered = written((again and again(mine)) or operation.answer(mine, **mine.given))
    except BridgeError as error:
        refused = convert_error(error)
        if refused.name in _TRANSIENT:
            _release_claim(asked, begun.claim)
            raise
        answered = build_problem_response(refused)
    except BaseException:
        _release_claim(asked, begun.claim)
        raise
    _keep_answer(asked, begun.claim, answered)
    return answered


def _replay_answer(answered: AnsweredRequest) -> Response:
    said = json.loads(answered.answer)
    return Response(said["body"], answered.status, {**said["headers"], REPLAYED_HEADER: "true"})


def _keep_answer(asked: ApiRequest, claim: RequestClaim, made: Response) -> None:
    kept = {name: value for name, value in made.headers.items() if name != "content-length"}
    answer = json.dumps({"headers": kept, "body": bytes(made.body).decode()})
    try:
        asked.desk.requests.answered(claim, made.status_code, answer)
    except DeskUnavailable as error:
        # It was done, and is noted with the action: a repeated request gets the answer.
        logger.warning("the answer to a request is not kept: %s", error)


def _release_claim(asked: ApiRequest, claim: RequestClaim) -> None:
    try:
        asked.desk.requests.leave(claim)
    except DeskUnavailable as error:
        logger.warning("a request is left for who asks again in two minutes: %s", error)
