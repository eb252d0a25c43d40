"""The OpenAPI 3.1 description of the API, built from the declared operations and their schemas (pure)."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from bridge.console.api.api_operation import Operation, is_list_field
from bridge.console.api.problem_details import API_ROOT, PROBLEM_JSON, PROBLEM_KINDS
from bridge.console.api.schemas.common_schema import MAX_WHY, ProblemDetails
from bridge.console.auth.authorization import ScopeRule

_PATH_PART: Final = re.compile(r"{(\w+)(:int)?}")
_SCHEMA_REFERENCE: Final = "#/components/schemas/{model}"
#: The problems that every operation may answer with.
_COMMON_PROBLEMS: Final = (
    "malformed",
    "unauthorized",
    "forbidden",
    "misdirected",
    "invalid",
    "slow-down",
    "fault",
    "unavailable",
)
#: What an operation says that is closed to tokens with a scope.
_CLOSED: Final = " Not for a token that sees some topics or consumer groups alone."
_DESCRIPTION: Final = """\
The dead-letter store for programs. Send `Authorization: Bearer` with a token that
`bridge deadletters users tokens make` has printed; its role says what it may (`x-role`): viewer, operator, admin, each
all that those before may. A token for some topics or consumer groups sees their letters alone, and acts on no
others. An action needs an `Idempotency-Key`. Errors are problem details (RFC 9457)."""


def describe_api(operations: Sequence[Operation]) -> dict[str, Any]:
    """Return the OpenAPI description of operations."""
    shapes, schemas = _build_schemas(operations)
    paths: dict[str, Any] = {}
    for each in operations:
        paths.setdefault(API_ROOT + _PATH_PART.sub(r"{\1}", each.path), {})[each.method.lower()] = _describe_operation(
            each, shapes
        )
    bearer = {"type": "http", "scheme": "bearer", "description": "A token of the console."}
    return {
        "openapi": "3.1.0",
        "info": {"title": "celery-kafka-bridge: dead letters", "version": "1", "description": _DESCRIPTION},
        "servers": [{"url": "/"}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": {"token": bearer}},
    }


def build_path_matcher(path: str) -> Callable[[str], bool]:
    """Return a pattern for the addresses of a path."""
    parts = _PATH_PART.sub(lambda part: "[0-9]{1,18}" if part[2] else "[^/]+", path)
    return lambda address: re.fullmatch(parts, address) is not None


def _build_schemas(operations: Sequence[Operation]) -> tuple[dict[Any, Any], dict[str, Any]]:
    given = dict.fromkeys([each.gives for each in operations if each.gives] + [ProblemDetails])
    taken = dict.fromkeys(each.takes for each in operations if each.takes)
    models: list[tuple[type[BaseModel], Any]] = [(each, "serialization") for each in given]
    models += [(each, "validation") for each in taken]
    refs, found = models_json_schema(models, ref_template=_SCHEMA_REFERENCE)
    # A component is named by its title, which clients know: a class may have another name.
    titles = {name: schema["title"] for name, schema in found.get("$defs", {}).items()}
    text = json.dumps([[*refs.values()], found.get("$defs", {})])
    for name, title in titles.items():
        text = text.replace(f'"{_SCHEMA_REFERENCE.format(model=name)}"', f'"{_SCHEMA_REFERENCE.format(model=title)}"')
    named, schemas = json.loads(text)
    by_title = sorted((titles[name], schema) for name, schema in schemas.items())
    return {model: ref for (model, _), ref in zip(refs, named, strict=True)}, dict(by_title)


def _describe_operation(each: Operation, shapes: dict[Any, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {
        "operationId": each.name,
        "summary": each.summary,
        "description": f"Needs the role {each.role}.{_CLOSED if each.scope is ScopeRule.CLOSED else ''}",
        "x-role": str(each.role),
        "tags": [each.path.split("/")[1]],
        "parameters": [*_list_path_parameters(each), *_list_query_parameters(each), *_list_header_parameters(each)],
        "responses": _describe_responses(each, shapes),
    }
    if each.takes is not None:
        content = {"application/json": {"schema": shapes[each.takes]}}
        made["requestBody"] = {"required": True, "content": content}
    return made


def _list_path_parameters(each: Operation) -> Iterator[dict[str, Any]]:
    for name, number in _PATH_PART.findall(each.path):
        schema: dict[str, Any] = {"type": "string", "minLength": 1, "pattern": "^[^/]+$"}
        if number:
            schema = {"type": "integer", "minimum": 0, "maximum": 10**18 - 1}
        yield {"name": name, "in": "path", "required": True, "schema": schema}


def _list_query_parameters(each: Operation) -> Iterator[dict[str, Any]]:
    schema = each.query.model_json_schema(ref_template=_SCHEMA_REFERENCE)
    for name, field in each.query.model_fields.items():
        said = {key: value for key, value in schema["properties"][name].items() if key != "title"}
        found = {"name": name, "in": "query", "required": field.is_required(), "schema": _drop_null(said)}
        yield found | ({"style": "form", "explode": True} if is_list_field(field.annotation) else {})


def _drop_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an optional parameter without null, which an address cannot express."""
    choices = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
    if len(choices) == 1:
        rest = {key: value for key, value in schema.items() if key not in ("anyOf", "default")}
        return {**rest, **choices[0]}
    return schema


def _list_header_parameters(each: Operation) -> Iterator[dict[str, Any]]:
    if each.act is None:
        return
    key = {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"}
    words = "A new one for each wish; the same one to ask again, for a day: it is done once, and answered the same."
    yield {"name": "Idempotency-Key", "in": "header", "required": True, "schema": key, "description": words}
    if each.act.seen:
        words = "The ETag that was decided on; `*`: however it stands."
        schema = {"type": "string", "pattern": r'^(\*|"[!#-~]*")$', "maxLength": MAX_WHY}
        must = each.act.seen == "must"
        yield {"name": "If-Match", "in": "header", "required": must, "schema": schema, "description": words}


def _describe_responses(each: Operation, shapes: dict[Any, Any]) -> dict[str, Any]:
    schema = shapes[each.gives] if each.gives else {"type": "string", "contentEncoding": "binary"}
    kind = "application/json" if each.gives else each.media
    fine: dict[str, Any] = {"description": "Done." if each.act else "Found.", "content": {kind: {"schema": schema}}}
    if each.act:
        fine["headers"] = {
            "Idempotency-Replayed": {"description": "It was done before.", "schema": {"type": "string"}},
        }
    found = {str(each.status): fine}
    for status, titles in sorted(_list_problems(each).items()):
        problem = {PROBLEM_JSON: {"schema": shapes[ProblemDetails]}}
        found[str(status)] = {"description": " ".join(titles), "content": problem}
    return found


def _list_problems(each: Operation) -> dict[int, list[str]]:
    names = [*_COMMON_PROBLEMS, "refused"]
    if "{" in each.path or each.name == "find":
        names.append("not-found")
    if each.takes is not None:
        names += ["media-type"]
    if each.method == "POST":
        names += ["too-large"]
    if each.act is not None:
        names += ["key-missing", "key-reused", "under-way", "changed"]
        names += ["not-seen"] if each.act.seen == "must" else []
    found: dict[int, list[str]] = {}
    for name in names:
        found.setdefault(PROBLEM_KINDS[name].status, []).append(PROBLEM_KINDS[name].title)
    return found
