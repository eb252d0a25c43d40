"""Whether a handler would take a value, without running it: for whoever mends dead letters, and for previews."""

import json
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from pydantic_core import to_jsonable_python

from tasks.codec import NOT_ITS_FAULT, Steps, both_reasons, is_read, problems
from tasks.upgrade import upgraded


@dataclass(frozen=True, slots=True)
class Validated:
    """What a handler's codec, model and `upgrade` say of a value.

    Attributes:
        ok: whether the handler would be given it, as it is or after its upgrade; `None` where that cannot be told
            now: what the codec or the upgrade asks is down.
        why: why not, or why it cannot be told; empty where it is ok.
        upgraded: whether it is ok only after its upgrade.
        before: what the codec makes of it, as JSON; empty where it does not decode or JSON has no form for it.
        after: the same of what the upgrade made of it; empty where it was not called.
    """

    ok: bool | None
    why: str = ""
    upgraded: bool = False
    before: str = ""
    after: str = ""


def check(way: Steps, value: bytes | None) -> Validated:
    """What would become of a value on this way. Never raises: the user's code runs here, whatever it does.

    Parameters:
        value: as in Kafka; `None` is a tombstone, which every handler is given as it is.
    """
    if value is None:
        return Validated(True)
    before = ""
    try:
        before = _shown(way.read(value))
        way.whole(value)
    except NOT_ITS_FAULT as error:
        return _unknown(error, before)
    except ValidationError as error:
        if way.upgrade is None or not is_read(error):
            return Validated(False, problems(error), before=before)
        refused = problems(error)
    except (Exception, SystemExit) as error:
        return Validated(False, _words(error), before=before)
    else:
        return Validated(True, before=before)
    return _after_upgrade(way, value, refused, before)


def _after_upgrade(way: Steps, value: bytes, refused: str, before: str) -> Validated:
    assert way.upgrade is not None
    assert way.validate is not None
    after = ""
    try:
        made = upgraded(way.upgrade, way.read(value))
        after = _shown(made)
        way.validate(made)
    except NOT_ITS_FAULT as error:
        return _unknown(error, before, after)
    except (Exception, SystemExit) as error:
        return Validated(False, _both(refused, error), False, before, after)
    return Validated(True, "", True, before, after)


def _unknown(error: BaseException, before: str, after: str = "") -> Validated:
    return Validated(None, f"it cannot be told now: {_words(error)}", False, before, after)


def _both(refused: str, error: BaseException) -> str:
    try:
        return both_reasons(refused, error)
    except Exception:
        # An error that cannot say what it is about.
        return f"{refused}; its upgrade raised {type(error).__name__}"


def _words(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__


def _shown(value: Any) -> str:
    try:
        return json.dumps(to_jsonable_python(value), ensure_ascii=False)
    except Exception:
        return ""
