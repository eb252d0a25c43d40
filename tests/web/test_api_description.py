"""What the API says of itself is what it does: asked for all that it allows, and for what it does not."""

import json
from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi import checks as of_openapi

from bridge.console.api import openapi
from bridge.console.api.api_endpoint import OPERATIONS
from bridge.console.api.problem_details import PROBLEM_KINDS
from bridge.console.asgi_app import build_application
from bridge.console.console import Console
from bridge.deadletters.accounts.user_account import Role
from bridge.deadletters.dead_letter_service import DeadLetterService
from tests.desk.letters import letter
from tests.hypothesis_profiles import examples
from tests.web.signed_in_console import desk_of

DOCS = Path(__file__).parents[2] / "docs"
#: How an answer is looked at. What a schema does not allow may still be taken: a pattern is Python's, and not ECMA's.
CHECKS = (
    not_a_server_error,
    of_openapi.status_code_conformance,
    of_openapi.content_type_conformance,
    of_openapi.response_schema_conformance,
)
#: These wait for Kafka and Redis, which are not there: they say so, and take their time for it.
WAITS = {
    *("haltTopic", "resumeTopic", "listHalts", "listPolicies", "getPolicy", "changePolicy", "getStatus"),
    *("planCopy", "planRedrive"),
}
#: The same each time, so that nobody's change fails by luck.
FEW = settings(
    max_examples=examples(12), deadline=None, database=None, derandomize=True, suppress_health_check=[*HealthCheck]
)
NAMES = [each.name for each in OPERATIONS if each.name not in WAITS]


@pytest.fixture(scope="module")
def described():
    """The description."""
    return openapi.describe_api(OPERATIONS)


@pytest.fixture
def served(desk, record, monkeypatch):
    """The API over some letters, and a token of each role."""
    quiet = desk_of(desk.database, monkeypatch)
    here = Console(DeadLetterService(desk.app, quiet.settings, desk.routes, desk.database), "shop")
    record(letter(1), letter(2, value=b"\xff", key=None), letter(3, value=None, timestamp=2**62))
    secrets = {role: here.desk.tokens.make(str(role), role, "ann")[1] for role in Role if role}
    schema = schemathesis.openapi.from_asgi(
        "/api/v1/openapi.json", build_application(here), headers={"host": "localhost"}
    )
    return schema, secrets


@pytest.mark.hypothesis
@pytest.mark.parametrize("name", NAMES)
def test_whatever_is_asked_is_answered_as_described_and_is_no_fault(served, name):
    schema, secrets = served

    for mode in GenerationMode:
        (operation,) = (found.ok() for found in schema.include(operation_id=name).get_all_operations())
        given(case=operation.as_strategy(generation_mode=mode))(FEW(asking(secrets)))()


def asking(secrets):
    """Asks by a token of each role."""

    def ask(case):
        for secret in secrets.values():
            said = {"authorization": f"Bearer {secret}", "host": "localhost"}
            case.validate_response(case.call(headers=said), checks=[*CHECKS])

    return ask


def test_the_description_in_the_documentation_is_the_one_that_is_served(described):
    kept = json.loads((DOCS / "reference" / "openapi.json").read_text())
    assert kept == described, "make openapi"


def test_each_operation_says_its_role_and_what_acts_its_key(described):
    operations = [each for path in described["paths"].values() for each in path.values()]
    assert {each["operationId"]: each["x-role"] for each in operations} == {
        each.name: str(each.role) for each in OPERATIONS
    }
    with_key = {
        each["operationId"]
        for each in operations
        if any(parameter["name"] == "Idempotency-Key" and parameter["required"] for parameter in each["parameters"])
    }
    assert with_key == {each.name for each in OPERATIONS if each.act}


def test_the_documentation_has_every_kind_of_problem():
    text = (DOCS / "reference" / "http-api.md").read_text()
    assert [name for name, kind in PROBLEM_KINDS.items() if f"| `{name}` | {kind.status} |" not in text] == []
