"""A client that was generated from an earlier description of `v1` works with the API as it is now."""

import copy
import json
from pathlib import Path

import pytest

from bridge.console.api import openapi
from bridge.console.api.api_endpoint import OPERATIONS
from tests.web.openapi_comparison import find_breaks, strip_prose

#: The description as clients have it, without its prose. A release that adds to the API may add to this file.
EARLIER = Path(__file__).parent / "data" / "openapi-v1.json"
PROBLEM = "application/problem+json"


@pytest.fixture(scope="module")
def described():
    """The description."""
    return strip_prose(openapi.describe_api(OPERATIONS))


def test_no_path_parameter_response_or_field_of_an_earlier_description_is_lost_and_none_is_stricter(described):
    assert find_breaks(json.loads(EARLIER.read_text()), described) == []


def change(description, *path, to=None):
    """A copy of a description with another value at one place; without `to` without that place."""
    made = copy.deepcopy(description)
    *there, last = path
    found = made
    for name in there:
        found = found[name]
    if to is None:
        del found[last]
    else:
        found[last] = to
    return made


LETTERS, PLANS = ("paths", "/api/v1/letters", "get"), ("paths", "/api/v1/plans", "post")
SCHEMAS = ("components", "schemas")


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (("paths", "/api/v1/letters"), None, "no such operation"),
        ((*LETTERS, "operationId"), "letters", "operationId: listLetters is letters"),
        ((*LETTERS, "x-role"), "admin", "x-role"),
        ((*LETTERS, "parameters", 0), None, "query id: no such parameter"),
        ((*LETTERS, "parameters", 0, "required"), True, "query id: is required"),
        ((*LETTERS, "parameters", 0, "schema", "maxItems"), 10, "query id: maxItems"),
        ((*LETTERS, "responses", "429"), None, "429: no such response"),
        ((*LETTERS, "responses", "429", "content", PROBLEM), None, "no such content"),
        ((*PLANS, "requestBody"), None, "body application/json: is not taken"),
        ((*PLANS, "responses", "201", "headers", "Idempotency-Replayed"), None, "no such header"),
        ((*SCHEMAS, "Line", "properties", "version"), None, "items[].version: no such field"),
        ((*SCHEMAS, "Line", "required"), ["id"], "may be absent"),
        ((*SCHEMAS, "Problem", "properties", "etag"), None, "etag: no such field"),
        ((*SCHEMAS, "Making", "required"), ["what", "letters", "why"], "body.why: may be absent"),
        ((*SCHEMAS, "Making", "properties", "letters"), {"type": "string"}, "object is not string"),
        ((*SCHEMAS, "Making", "properties", "what", "enum"), ["replay"], "is more than ['replay']"),
        ((*SCHEMAS, "Filter", "properties", "died_again"), None, "body.letters.died_again: no such field"),
        ((*SCHEMAS, "Plan", "properties", "state", "enum"), ["making", "lost"], "is more than"),
        (("security",), [{"other": []}], "security: [{'token': []}] is"),
    ],
)
def test_what_a_client_would_lose_is_found(described, place, value, said):
    found = find_breaks(described, change(described, *place, to=value))
    assert said in "\n".join(found)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("paths", "/api/v1/more"), {"get": {}}),
        ((*LETTERS, "parameters", 0, "schema", "maxItems"), 20_000),
        ((*SCHEMAS, "Line", "properties", "more"), {"type": "string"}),
        ((*SCHEMAS, "Making", "properties", "more"), {"type": "string"}),
        ((*SCHEMAS, "Making", "properties", "what", "enum"), ["replay", "discard", "archive", "more"]),
    ],
)
def test_what_is_added_is_no_loss(described, place, value):
    assert find_breaks(described, change(described, *place, to=value)) == []
