"""The API of failure groups: list, show, mark as fixed in a version, and annotate."""

from collections.abc import Sequence
from typing import Any

from bridge.console.api import api_request
from bridge.console.api.api_request import ApiAnswer, ApiRequest, quote_etag
from bridge.console.api.schemas import groups_schema as shapes
from bridge.console.api.schemas import letters_schema as letter_shapes
from bridge.console.decision_audit import build_group_version
from bridge.deadletters.db.audit_table import AuditEntry
from bridge.deadletters.inspection.failure_groups import GroupOrder, GroupState, RankedGroup
from bridge.deadletters.inspection.group_details import GroupCause, GroupVersion, replace_newest_letters
from bridge.deadletters.model.letter_filter import LetterFilter
from bridge.deadletters.model.letter_view import format_moment
from bridge.deadletters.model.stored_letter import LetterStatus
from bridge.errors import RequestRefused

_LIST = "groups"


def list_groups(asked: ApiRequest) -> ApiAnswer:
    """Return a page of groups; a cursor stays valid if its group is not listed any more."""
    query: shapes.GroupsQuery = asked.query
    found = asked.desk.groups.ranked(_read_group_filter(query), GroupOrder(query.order))
    begins = _find_start(found, query)
    some = found[begins : begins + query.limit]
    ids, more = [each.id for each in some], begins + query.limit < len(found)
    following = api_request.write_cursor(_LIST, f"{some[-1].id}-{begins + query.limit}") if more and some else None
    items = [each.to_data() for each in asked.desk.groups.of(ids)]
    return ApiAnswer(shapes.Groups.model_validate({"items": items, "next": following}))


def show_group(asked: ApiRequest) -> ApiAnswer:
    """Return a group."""
    return _answer_group(asked)


def mark_fixed(asked: ApiRequest) -> ApiAnswer:
    """Mark a group or a cause as fixed in a version."""
    group = asked.desk.groups.one(asked.path["id"])
    version = asked.body.version.strip()
    if not version:
        raise RequestRefused("refused", "In which version is it fixed? Name it as workers report theirs.")
    cause = asked.body.cause
    now = group if cause is None else group.fix_of(cause)
    if (now.fixed_in, now.fixed_by) != (version, asked.who.name):
        _require_seen(asked, group)
        asked.desk.groups.fixed(group.id, version, asked.who.name, group, cause=cause)
    return _answer_group(asked)


def unmark_fixed(asked: ApiRequest) -> ApiAnswer:
    """Take the mark back."""
    group = asked.desk.groups.one(asked.path["id"])
    query: shapes.WhichCause = asked.query
    now = group if query.cause is None else group.fix_of(query.cause)
    if now.fixed_in is not None:
        _require_seen(asked, group)
        asked.desk.groups.not_fixed(group.id, asked.who.name, group, cause=query.cause)
    return _answer_group(asked)


def repeat_mark(asked: ApiRequest, _done: AuditEntry) -> ApiAnswer:
    """Return the group as it is after the mark."""
    return _answer_group(asked)


def note_on_group(asked: ApiRequest) -> ApiAnswer:
    """Add a note to a group."""
    said = str(asked.body.said).strip()
    if not said:
        raise RequestRefused("refused", "A note has words: nothing was noted.")
    asked.desk.notes.on_group(asked.path["id"], said, asked.who.name)
    return _answer_notes(asked)


def repeat_note(asked: ApiRequest, _done: AuditEntry) -> ApiAnswer:
    """Return the notes of the group."""
    return _answer_notes(asked)


def build_group_etag(group: GroupState) -> str:
    """Return the version of a group and its causes that a decision refers to."""
    marks = (
        build_group_version(group).strip(),
        *(f"{each.cause} {build_group_version(each).strip()}" for each in group.cause_fixes),
    )
    return " ".join(marks).replace(" ", "-")


def _read_group_filter(query: shapes.GroupsQuery) -> LetterFilter:
    return LetterFilter(
        handlers=tuple(query.handler),
        topics=tuple(query.topic),
        exceptions=tuple(query.exception),
        reasons=tuple(query.reason),
        versions=tuple(query.version),
        origins=tuple(query.origin),
        statuses=tuple(map(LetterStatus, query.status)),
    )


def _find_start(found: Sequence[RankedGroup], query: shapes.GroupsQuery) -> int:
    if query.cursor is None:
        return 0
    last, _, place = api_request.read_cursor(_LIST, query.cursor).partition("-")
    number = api_request.read_number_cursor(_LIST, api_request.write_cursor(_LIST, place or "0"))
    return next((at + 1 for at, each in enumerate(found) if str(each.id) == last), number or 0)


def _require_seen(asked: ApiRequest, group: GroupState) -> None:
    acts = asked.desk.notes.of_group(group.id)
    last = acts[-1] if acts else None
    if last is None:
        asked.must_have_seen(build_group_etag(group))
    else:
        asked.must_have_seen(
            build_group_etag(group), last.by, format_moment(last.at), f"{last.what} {last.said}".strip()
        )


def _answer_group(asked: ApiRequest) -> ApiAnswer:
    group = asked.desk.groups.one(asked.path["id"])
    stand = asked.desk.standings.of([group])
    following = stand.groups[0].next
    made = shapes.OneGroup.model_validate(
        group.to_data()
        | {
            "etag": quote_etag(build_group_etag(group)),
            "next": {"do": str(following.do), "why": following.why},
            "causes": [each.to_data() for each in _list_causes(asked, group.id)],
            "by_version": [_describe_version(each) for each in asked.desk.versions.of(group)],
            "trail": [each.to_data() for each in asked.desk.notes.of_group(group.id)],
            "unknown": stand.trouble or None,
        }
    )
    return ApiAnswer(made, headers={"etag": quote_etag(build_group_etag(group))})


def _list_causes(asked: ApiRequest, group_id: int) -> list[GroupCause]:
    """Return the causes of a group, with their messages as the caller may see them."""
    causes = asked.desk.causes.of([group_id])[group_id]
    return replace_newest_letters(causes, asked.desk.lists(asked.masks).lines(each.newest for each in causes))


def _describe_version(found: GroupVersion) -> dict[str, Any]:
    return {name: getattr(found, name) for name in shapes.OfVersion.model_fields}


def _answer_notes(asked: ApiRequest) -> ApiAnswer:
    acts = asked.desk.notes.of_group(asked.path["id"])
    return ApiAnswer(letter_shapes.Notes.model_validate({"items": [each.to_data() for each in acts]}))
