"""The API of failure groups: list, show, mark as fixed in a version, and annotate."""

from collections.abc import Sequence
from typing import Any, Final

from bridge.console.api import api_operation
from bridge.console.api.api_operation import ApiRequest, Effect, OperationTable, quote_etag
from bridge.console.api.schemas import groups_schema as shapes
from bridge.console.api.schemas import letters_schema as letter_shapes
from bridge.console.auth import permissions as may
from bridge.console.auth.authorization import ScopeRule
from bridge.console.decision_audit import build_group_version
from bridge.console.thread_pools import WaitKind
from bridge.deadletters.inspection.failure_groups import GroupOrder, GroupState, RankedGroup
from bridge.deadletters.inspection.group_details import GroupCause, GroupVersion, replace_newest_letters
from bridge.deadletters.model.letter_filter import LetterFilter
from bridge.deadletters.model.letter_view import format_moment
from bridge.deadletters.model.stored_letter import LetterStatus
from bridge.errors import RequestRefused

operations: Final = OperationTable()

_STATUS: Final = WaitKind.STATUS
_LIST: Final = "groups"


@operations.declare("GET /groups", may.VIEW, "listGroups", waits=_STATUS, scope=ScopeRule.NARROWED)
def list_groups(asked: ApiRequest, query: shapes.GroupsQuery) -> shapes.Groups:
    """Return the groups that have letters of a filter."""
    found = asked.desk.groups.ranked(_read_group_filter(query), GroupOrder(query.order))
    begins = _find_start(found, query)
    some = found[begins : begins + query.limit]
    ids, more = [each.id for each in some], begins + query.limit < len(found)
    following = api_operation.write_cursor(_LIST, f"{some[-1].id}-{begins + query.limit}") if more and some else None
    items = [each.to_data() for each in asked.desk.groups.read_groups(ids)]
    return shapes.Groups.model_validate({"items": items, "next": following})


@operations.declare("GET /groups/{id:int}", may.VIEW, "getGroup", waits=_STATUS, scope=ScopeRule.NARROWED)
def show_group(asked: ApiRequest) -> shapes.OneGroup:
    """Return a group, and what to do with it next."""
    group = asked.desk.groups.one(asked.path["id"])
    stand = asked.desk.standings.read_standings([group])
    following = stand.groups[0].next
    return shapes.OneGroup.model_validate(
        group.to_data()
        | {
            "etag": quote_etag(build_group_etag(group)),
            "next": {"do": str(following.do), "why": following.why},
            "causes": [each.to_data() for each in _list_causes(asked, group.id)],
            "by_version": [_describe_version(each) for each in asked.desk.versions.read_versions(group)],
            "trail": [each.to_data() for each in asked.desk.notes.of_group(group.id)],
            "unknown": stand.trouble or None,
        }
    )


@operations.declare(
    "POST /groups/{id:int}/fixed",
    may.MARK_GROUP_FIXED,
    "markFixed",
    Effect(show_group, "must"),
    waits=_STATUS,
    scope=ScopeRule.NARROWED,
)
def mark_fixed(asked: ApiRequest, body: shapes.Fixing) -> shapes.OneGroup:
    """Mark a group, or a cause of it, as fixed in a version: its letters go back once all workers have that."""
    group = asked.desk.groups.one(asked.path["id"])
    version = body.version.strip()
    if not version:
        raise RequestRefused("refused", "In which version is it fixed? Name it as workers report theirs.")
    cause = body.cause
    now = group if cause is None else group.fix_of(cause)
    if (now.fixed_in, now.fixed_by) != (version, asked.who.name):
        _require_seen(asked, group)
        asked.desk.groups.fixed(group.id, version, asked.who.name, group, cause=cause)
    return show_group(asked)


@operations.declare(
    "POST /groups/{id:int}/not-fixed",
    may.MARK_GROUP_FIXED,
    "unmarkFixed",
    Effect(show_group, "must"),
    waits=_STATUS,
    scope=ScopeRule.NARROWED,
)
def unmark_fixed(asked: ApiRequest, query: shapes.WhichCause) -> shapes.OneGroup:
    """Remove the mark of a group, or of one of its causes."""
    group = asked.desk.groups.one(asked.path["id"])
    now = group if query.cause is None else group.fix_of(query.cause)
    if now.fixed_in is not None:
        _require_seen(asked, group)
        asked.desk.groups.not_fixed(group.id, asked.who.name, group, cause=query.cause)
    return show_group(asked)


def list_notes(asked: ApiRequest) -> letter_shapes.Notes:
    """Return the notes on a group."""
    acts = asked.desk.notes.of_group(asked.path["id"])
    return letter_shapes.Notes.model_validate({"items": [each.to_data() for each in acts]})


@operations.declare(
    "POST /groups/{id:int}/notes", may.WRITE_NOTE, "noteOnGroup", Effect(list_notes), scope=ScopeRule.NARROWED
)
def note_on_group(asked: ApiRequest, body: letter_shapes.Noting) -> letter_shapes.Notes:
    """Add a note to a group."""
    said = body.said.strip()
    if not said:
        raise RequestRefused("refused", "The note is empty. Nothing was changed.")
    asked.desk.notes.on_group(asked.path["id"], said, asked.who.name)
    return list_notes(asked)


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
        consumer_groups=tuple(query.consumer_group),
        statuses=tuple(map(LetterStatus, query.status)),
    )


def _find_start(found: Sequence[RankedGroup], query: shapes.GroupsQuery) -> int:
    if query.cursor is None:
        return 0
    last, _, place = api_operation.read_cursor(_LIST, query.cursor).partition("-")
    number = api_operation.read_number_cursor(_LIST, api_operation.write_cursor(_LIST, place or "0"))
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


def _list_causes(asked: ApiRequest, group_id: int) -> list[GroupCause]:
    """Return the causes of a group, with their messages as the caller may see them."""
    causes = asked.desk.causes.read_causes([group_id])[group_id]
    return replace_newest_letters(causes, asked.desk.lists(asked.masks).lines(each.newest for each in causes))


def _describe_version(found: GroupVersion) -> dict[str, Any]:
    return {name: getattr(found, name) for name in shapes.OfVersion.model_fields}
