"""What a client loses between two OpenAPI descriptions of one API: sentences, none if the new one is compatible."""

from collections.abc import Iterator
from typing import Any

Schema = dict[str, Any]

#: What is read by people alone.
PROSE = ("title", "description", "summary", "examples")
#: The limits of a schema: which of two values allows less.
LOWEST, HIGHEST = (
    ("minimum", "exclusiveMinimum", "minLength", "minItems"),
    ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"),
)
#: What is the same, or is not limited at all.
SAME = ("pattern", "format", "contentEncoding")
#: The keywords of which the comparison knows what they mean.
KNOWN = {
    *(*LOWEST, *HIGHEST, *SAME, *PROSE),
    *("type", "enum", "const", "anyOf", "items", "properties", "required", "additionalProperties", "default", "$ref"),
}


def strip_prose(data: Any, names: bool = False) -> Any:
    """Return a description without its prose; `names`: the keys are names of fields."""
    if isinstance(data, list):
        return [strip_prose(each) for each in data]
    if not isinstance(data, dict):
        return data
    return {
        name: strip_prose(value, names=name in ("properties", "schemas"))
        for name, value in data.items()
        if names or name not in PROSE
    }


def find_breaks(old: Schema, new: Schema) -> list[str]:
    """Return what a client of the old description could do and could read, and cannot with the new one."""
    return [f"{where}: {what}" for where, what in _compare_descriptions(old, new)]


def _compare_descriptions(old: Schema, new: Schema) -> Iterator[tuple[str, str]]:
    for name in old["components"]["schemas"].keys() - new["components"]["schemas"].keys():
        yield name, "no such schema"
    for path, operations in old["paths"].items():
        for method, before in operations.items():
            where = f"{method.upper()} {path}"
            after = new["paths"].get(path, {}).get(method)
            if after is None:
                yield where, "no such operation"
            else:
                yield from ((f"{where} {there}", what) for there, what in _compare_operations(old, before, new, after))


def _compare_operations(old: Schema, before: Schema, new: Schema, after: Schema) -> Iterator[tuple[str, str]]:
    requests, responses = SchemaComparison(inner=old, outer=new), SchemaComparison(inner=new, outer=old)
    for name, earlier, now in (
        *((name, before.get(name), after.get(name)) for name in ("operationId", "x-role")),
        ("security", before.get("security", old.get("security")), after.get("security", new.get("security"))),
    ):
        if earlier != now:
            yield name, f"{earlier} is {now}"
    yield from _compare_parameters(before["parameters"], after["parameters"], requests)
    yield from _compare_bodies(before.get("requestBody"), after.get("requestBody"), requests)
    for status, response in before["responses"].items():
        if status in after["responses"]:
            yield from _compare_responses(response, after["responses"][status], responses, status)
        else:
            yield status, "no such response"


def _compare_parameters(
    before: list[Schema], after: list[Schema], requests: "SchemaComparison"
) -> Iterator[tuple[str, str]]:
    given, taken = ({(each["in"], each["name"]): each for each in listed} for listed in (before, after))
    for key in given.keys() | taken.keys():
        where = " ".join(key)
        if key not in taken:
            yield where, "no such parameter"
            continue
        if taken[key]["required"] and not given.get(key, {}).get("required"):
            yield where, "is required"
        if key in given:
            yield from requests.find_excess(given[key]["schema"], taken[key]["schema"], where)


def _compare_bodies(
    before: Schema | None, after: Schema | None, requests: "SchemaComparison"
) -> Iterator[tuple[str, str]]:
    if after is not None and after.get("required") and not (before and before.get("required")):
        yield "body", "is required"
    for kind, content in before["content"].items() if before else ():
        if after is None or kind not in after["content"]:
            yield f"body {kind}", "is not taken"
        else:
            yield from requests.find_excess(content["schema"], after["content"][kind]["schema"], "body")


def _compare_responses(
    before: Schema, after: Schema, responses: "SchemaComparison", status: str
) -> Iterator[tuple[str, str]]:
    for name in before.get("headers", {}).keys() - after.get("headers", {}).keys():
        yield f"{status} {name}", "no such header"
    for kind, content in before["content"].items():
        if kind not in after["content"]:
            yield f"{status} {kind}", "no such content"
        else:
            yield from responses.find_excess(after["content"][kind]["schema"], content["schema"], status)
            yield from responses.find_lost_fields(after["content"][kind]["schema"], content["schema"], status)


class SchemaComparison:
    """Compares two schemas, each of its own description.

    Of a request, the old schema is the inner one: all that it allows must be allowed still. Of a response it is the
    outer one: nothing may come that it does not allow.
    """

    def __init__(self, inner: Schema, outer: Schema) -> None:
        self._inner, self._outer = inner, outer

    def find_excess(self, inner: Schema, outer: Schema, where: str) -> Iterator[tuple[str, str]]:
        """Yield what the inner schema allows and the outer one does not."""
        inner, outer = _resolve(self._inner, inner), _resolve(self._outer, outer)
        assert (inner.keys() | outer.keys()) <= KNOWN, f"{where}: the comparison does not know all of it"
        if "anyOf" in inner:
            for choice in inner["anyOf"]:
                yield from self.find_excess(choice, outer, where)
        elif "anyOf" in outer:
            found = [[*self.find_excess(inner, choice, where)] for choice in outer["anyOf"]]
            yield from min(found, key=len)
        else:
            yield from ((where, what) for what in _find_narrower_limits(inner, outer))
            if "items" in outer:
                yield from self.find_excess(inner.get("items", {}), outer["items"], f"{where}[]")
            yield from self._find_excess_fields(inner, outer, where)

    def _find_excess_fields(self, inner: Schema, outer: Schema, where: str) -> Iterator[tuple[str, str]]:
        fields, allowed = inner.get("properties", {}), outer.get("properties", {})
        others = outer.get("additionalProperties", True)
        for name in set(outer.get("required", ())) - set(inner.get("required", ())):
            yield f"{where}.{name}", "may be absent on one side alone"
        for name, field in fields.items():
            if name in allowed:
                yield from self.find_excess(field, allowed[name], f"{where}.{name}")
            elif others is False:
                yield f"{where}.{name}", "no such field"
            elif isinstance(others, dict):
                yield from self.find_excess(field, others, f"{where}.{name}")
        if others is False and inner.get("additionalProperties", True) is not False:
            yield where, "other fields are refused"
        elif isinstance(others, dict):
            more = inner.get("additionalProperties", True)
            if more is not False:
                yield from self.find_excess({} if more is True else more, others, f"{where}.*")

    def find_lost_fields(self, inner: Schema, outer: Schema, where: str) -> Iterator[tuple[str, str]]:
        """Yield the fields that the outer schema names and the inner one does not, optional ones too."""
        inner, outer = _resolve(self._inner, inner), _resolve(self._outer, outer)
        for name, field in outer.get("properties", {}).items():
            if name not in inner.get("properties", {}):
                yield f"{where}.{name}", "no such field"
            else:
                yield from self.find_lost_fields(inner["properties"][name], field, f"{where}.{name}")
        for choice, other in zip(inner.get("anyOf", ()), outer.get("anyOf", ()), strict=False):
            yield from self.find_lost_fields(choice, other, where)
        if "items" in outer and "items" in inner:
            yield from self.find_lost_fields(inner["items"], outer["items"], f"{where}[]")


def _resolve(description: Schema, schema: Schema) -> Schema:
    if "$ref" not in schema:
        return schema
    found: Schema = description["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return found


def _find_narrower_limits(inner: Schema, outer: Schema) -> Iterator[str]:
    kinds = (inner.get("type"), outer.get("type"))
    if outer.get("type") and kinds[0] != kinds[1] and kinds != ("integer", "number"):
        yield f"{kinds[0]} is not {kinds[1]}"
    values, allowed = _list_values(inner), _list_values(outer)
    if allowed is not None and (values is None or any(each not in allowed for each in values)):
        yield f"{values} is more than {allowed}"
    for name in LOWEST:
        if name in outer and inner.get(name, float("-inf")) < outer[name]:
            yield f"{name} is {inner.get(name)}, and {outer[name]}"
    for name in HIGHEST:
        if name in outer and inner.get(name, float("inf")) > outer[name]:
            yield f"{name} is {inner.get(name)}, and {outer[name]}"
    for name in SAME:
        if name in outer and inner.get(name) != outer[name]:
            yield f"{name} is {inner.get(name)}, and {outer[name]}"


def _list_values(schema: Schema) -> list[Any] | None:
    return [schema["const"]] if "const" in schema else schema.get("enum")
