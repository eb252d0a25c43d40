"""What a request says, by the shapes of its operation (pure)."""

from collections import Counter
from typing import Any, Final, get_args, get_origin

from pydantic import ValidationError
from starlette.datastructures import Headers, QueryParams

from bridge.errors import RequestRefused
from bridge.web.api.shapes.common import Wanted

#: Bytes of a body; a value that is edited is the largest thing in one.
LARGEST: Final = 2_000_000
#: Faults of one request that are said.
MOST_FAULTS: Final = 20


def query(shape: type[Wanted], params: QueryParams) -> Wanted:
    """The parameters of an address.

    Raises:
        RequestRefused: they are none.
    """
    counted = Counter(name for name, _ in params.multi_items())
    said: dict[str, Any] = {}
    for name, times in counted.items():
        field = shape.model_fields.get(name)
        if field is not None and is_list(field.annotation):
            said[name] = params.getlist(name)
        elif times > 1:
            raise _invalid([{"where": f"query.{name[:100]}", "what": "is said more than once"}])
        else:
            said[name] = params[name]
    try:
        return shape.model_validate(said)
    except ValidationError as error:
        raise _invalid(_faults("query", error)) from None


def body(shape: type[Wanted], headers: Headers, raw: bytes) -> Wanted:
    """A body.

    Raises:
        RequestRefused: it is none of this shape.
    """
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise RequestRefused("media-type", "Send JSON, with Content-Type: application/json. Nothing was done.")
    try:
        return shape.model_validate_json(raw)
    except ValidationError as error:
        faults = _faults("body", error)
        if error.errors(include_input=False, include_url=False)[0]["type"] == "json_invalid":
            raise RequestRefused("malformed", f"The body is no JSON: {faults[0]['what']}. Nothing was done.") from None
        raise _invalid(faults) from None


def seen(headers: Headers) -> str | None:
    """What `If-Match` says, without its quotes.

    Raises:
        RequestRefused: it says several, or a weak one.
    """
    said = headers.get("if-match")
    if said is None or said == "*":
        return said
    if len(said) < 2 or not said.startswith('"') or not said.endswith('"') or '"' in said[1:-1]:
        raise RequestRefused("malformed", "If-Match is one ETag, in quotes, as it was given; or *. Nothing was done.")
    return said[1:-1]


def is_list(annotation: object) -> bool:
    """Whether a field may be said several times."""
    if get_origin(annotation) is list:
        return True
    return any(is_list(each) for each in get_args(annotation))


def _faults(of: str, error: ValidationError) -> list[dict[str, str]]:
    # Without what was sent: it may be a payload.
    found = error.errors(include_input=False, include_url=False, include_context=False)[:MOST_FAULTS]
    return [{"where": ".".join([of, *map(str, each["loc"])])[:200], "what": each["msg"]} for each in found]


def _invalid(faults: list[dict[str, str]]) -> RequestRefused:
    first = faults[0]
    return RequestRefused("invalid", f"{first['where']}: {first['what']}. Nothing was done.", errors=faults)
