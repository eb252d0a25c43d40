"""Groups: listed, one, marked as fixed in a version, noted on."""

from collections.abc import Sequence
from typing import Any

from bridge.deadletters.letters.filters import Filter
from bridge.deadletters.letters.letter import Status
from bridge.deadletters.questions.group_causes import GroupCause, with_letters
from bridge.deadletters.questions.groups import Grouped
from bridge.deadletters.questions.of_versions import OfVersion
from bridge.deadletters.questions.ranking import Order, Ranked
from bridge.deadletters.questions.shown import moment
from bridge.deadletters.store.trail import Entry
from bridge.errors import RequestRefused
from bridge.web.api import cursors
from bridge.web.api.asked import Answer, Asked, quoted
from bridge.web.api.shapes import groups as shapes
from bridge.web.api.shapes import letters as letter_shapes
from bridge.web.deciding import act

_LIST = "groups"


def listed(asked: Asked) -> Answer:
    """A page of them; behind a group that is not listed any more, it goes on where that stood."""
    query: shapes.GroupsQuery = asked.query
    found = asked.desk.groups.ranked(_filter(query), Order(query.order))
    begins = _begin(found, query)
    some = found[begins : begins + query.limit]
    ids, more = [each.id for each in some], begins + query.limit < len(found)
    following = cursors.written(_LIST, f"{some[-1].id}-{begins + query.limit}") if more and some else None
    items = [each.to_data() for each in asked.desk.groups.of(ids)]
    return Answer(shapes.Groups.model_validate({"items": items, "next": following}))


def one(asked: Asked) -> Answer:
    """A group as it stands."""
    return _shown(asked)


def fix(asked: Asked) -> Answer:
    """Mark it as fixed."""
    group = asked.desk.groups.one(asked.path["id"])
    version = asked.body.version.strip()
    if not version:
        raise RequestRefused("refused", "In which version is it fixed? Name it as workers report theirs.")
    cause = asked.body.cause
    now = group if cause is None else group.fix_of(cause)
    if (now.fixed_in, now.fixed_by) != (version, asked.who.name):
        _must_have_seen(asked, group)
        asked.desk.groups.fixed(group.id, version, asked.who.name, group, cause=cause)
    return _shown(asked)


def unfix(asked: Asked) -> Answer:
    """Take that back."""
    group = asked.desk.groups.one(asked.path["id"])
    query: shapes.WhichCause = asked.query
    now = group if query.cause is None else group.fix_of(query.cause)
    if now.fixed_in is not None:
        _must_have_seen(asked, group)
        asked.desk.groups.not_fixed(group.id, asked.who.name, group, cause=query.cause)
    return _shown(asked)


def done(asked: Asked, _done: Entry) -> Answer:
    """The group as it stands after that."""
    return _shown(asked)


def note(asked: Asked) -> Answer:
    """Note something on it."""
    said = str(asked.body.said).strip()
    if not said:
        raise RequestRefused("refused", "A note has words: nothing was noted.")
    asked.desk.notes.on_group(asked.path["id"], said, asked.who.name)
    return _notes(asked)


def noted(asked: Asked, _done: Entry) -> Answer:
    """What is noted."""
    return _notes(asked)


def etag(group: Grouped) -> str:
    """The marks of a group and of its causes that somebody saw who decides on it."""
    marks = (act(group).strip(), *(f"{each.cause} {act(each).strip()}" for each in group.cause_fixes))
    return " ".join(marks).replace(" ", "-")


def _filter(query: shapes.GroupsQuery) -> Filter:
    return Filter(
        handlers=tuple(query.handler),
        topics=tuple(query.topic),
        exceptions=tuple(query.exception),
        reasons=tuple(query.reason),
        versions=tuple(query.version),
        origins=tuple(query.origin),
        statuses=tuple(map(Status, query.status)),
    )


def _begin(found: Sequence[Ranked], query: shapes.GroupsQuery) -> int:
    if query.cursor is None:
        return 0
    last, _, place = cursors.read(_LIST, query.cursor).partition("-")
    number = cursors.number(_LIST, cursors.written(_LIST, place or "0"))
    return next((at + 1 for at, each in enumerate(found) if str(each.id) == last), number or 0)


def _must_have_seen(asked: Asked, group: Grouped) -> None:
    acts = asked.desk.notes.of_group(group.id)
    last = acts[-1] if acts else None
    if last is None:
        asked.must_have_seen(etag(group))
    else:
        asked.must_have_seen(etag(group), last.by, moment(last.at), f"{last.what} {last.said}".strip())


def _shown(asked: Asked) -> Answer:
    group = asked.desk.groups.one(asked.path["id"])
    stand = asked.desk.standings.of([group])
    following = stand.groups[0].next
    made = shapes.OneGroup.model_validate(
        group.to_data()
        | {
            "etag": quoted(etag(group)),
            "next": {"do": str(following.do), "why": following.why},
            "causes": [each.to_data() for each in _causes(asked, group.id)],
            "by_version": [_of_version(each) for each in asked.desk.versions.of(group)],
            "trail": [each.to_data() for each in asked.desk.notes.of_group(group.id)],
            "unknown": stand.trouble or None,
        }
    )
    return Answer(made, headers={"etag": quoted(etag(group))})


def _causes(asked: Asked, group_id: int) -> list[GroupCause]:
    """The causes of a group with their messages as the caller may see them."""
    causes = asked.desk.causes.of([group_id])[group_id]
    return with_letters(causes, asked.desk.lists(asked.masks).lines(each.newest for each in causes))


def _of_version(found: OfVersion) -> dict[str, Any]:
    return {name: getattr(found, name) for name in shapes.OfVersion.model_fields}


def _notes(asked: Asked) -> Answer:
    acts = asked.desk.notes.of_group(asked.path["id"])
    return Answer(letter_shapes.Notes.model_validate({"items": [each.to_data() for each in acts]}))
