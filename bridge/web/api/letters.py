"""Letters: listed, one, its value, a look at another value; noted on, and edited."""

import binascii
from base64 import b64decode
from collections.abc import Callable, Sequence
from typing import Any

from bridge.commands.elsewhere import elsewhere as asked_elsewhere
from bridge.deadletters.letters.filters import Cursor
from bridge.deadletters.masking.hidden import MASK
from bridge.deadletters.questions.in_topics import with_value
from bridge.deadletters.questions.shown import Shown
from bridge.deadletters.store.trail import Entry
from bridge.errors import EditRefused, RequestRefused
from bridge.web.api import cursors, filters, plans, written
from bridge.web.api.asked import Answer, Asked
from bridge.web.api.shapes import letters as shapes
from bridge.web.api.shapes import making
from bridge.web.finding import unquoted
from bridge.web.patching import bounded

_LIST = "letters"
#: Letters whose handlers are asked while who asks waits: 0.1 ms of a core each, and 0.1 to 0.2 ms a KB of values.
MOST_CHECKED = 10_000


def listed(asked: Asked) -> Answer:
    """A page of the letters of a filter."""
    query: shapes.Listing = asked.query
    before = None if query.cursor is None else Cursor.read(cursors.read(_LIST, query.cursor))
    page = asked.desk.letters.page(asked.masks.check(filters.meant(query)), query.limit, before)
    following = None if page.next is None else cursors.written(_LIST, page.next)
    return Answer(shapes.Page(items=written.lines(asked, page.letters), next=following))


def counted(asked: Asked) -> Answer:
    """How many a filter means."""
    count = asked.desk.letters.count(asked.masks.check(filters.meant(asked.query)))
    return Answer(shapes.Counted(count=count.number, exact=count.exact, among=count.among))


def one(asked: Asked) -> Answer:
    """A letter."""
    return Answer(written.whole(asked, asked.desk.letters.one(asked.path["id"])))


def value(asked: Asked) -> Answer:
    """Its value, byte for byte."""
    found = written.value(asked, _with_value(asked), tokens=asked.query.tokens)
    if found is None:
        raise RequestRefused(
            "not-found",
            "This letter has no value here: it is a tombstone, or too large for the database (?kafka=true reads it "
            "from Kafka, while that has it).",
        )
    name = f'attachment; filename="letter-{asked.path["id"]}.bin"'
    return Answer(found, headers={"content-disposition": name})


def elsewhere(asked: Asked) -> Answer:
    """What became of the same message for each handler."""
    desk, view = asked.desk, asked.masks.letter(asked.desk.letters.one(asked.path["id"]))
    it = view.letter.listed
    found = asked_elsewhere(desk.app, desk.settings, desk.routes, it.origin, it.topic, it.partition, it.offset)
    if isinstance(found, str):
        return Answer(shapes.Elsewhere(deliveries=[], unknown=found))
    return Answer(shapes.Elsewhere(deliveries=unquoted(found, view.quotes), unknown=None))


def check(asked: Asked) -> Answer:
    """What its handler says of another value."""
    editing = asked.desk.editing(asked.masks)
    said, difference = editing.judged(asked.path["id"], _octets(asked.body.value))
    return Answer(shapes.Verdict(ok=said.ok, why=said.why, upgraded=said.upgraded, difference=difference))


def check_all(asked: Asked) -> Answer:
    """What handlers say of the values of many letters."""
    wanted = asked.masks.check(filters.meant(asked.body.letters))
    bounded(asked.desk, wanted, MOST_CHECKED, "checked")
    found = asked.desk.mending.check(wanted).to_data()
    if asked.masks:
        # Of whose letter a reason is, is not kept with it: handlers may quote what somebody does not see.
        for reasons in ("invalid_reasons", "unknown_reasons"):
            found[reasons] = [each | {"why": MASK} for each in found[reasons]]
    return Answer(making.Checked.model_validate(found))


def edit(asked: Asked) -> Answer:
    """A plan that sends it back with another value."""
    body: shapes.Editing = asked.body
    why = body.why.strip()
    if body.force and not why:
        raise RequestRefused("refused", "What does not validate is sent only with a reason: say why. Nothing was sent.")
    id_, editing = asked.path["id"], asked.desk.editing(asked.masks)
    try:
        value = editing.filled(id_, _octets(body.value))
        plan = editing.edit(id_, value, asked.who.name, why, force=body.force)
    except EditRefused as error:
        raise RequestRefused("refused", str(error).replace("--force", '"force": true')) from None
    return plans.made(asked, plan.id)


def edited(asked: Asked, done: Entry) -> Answer:
    """The plan that it was."""
    return plans.made(asked, done.plan_id or 0)


def note(asked: Asked) -> Answer:
    """Note something on it."""
    asked.desk.notes.on_letters([asked.path["id"]], _said(asked), asked.who.name)
    return _notes(asked)


def noted(asked: Asked, _done: Entry) -> Answer:
    """What is noted."""
    return _notes(asked)


def reopen(asked: Asked) -> Answer:
    """Open it: its replay did not run."""
    return _ended(asked, asked.desk.unknown_ends.reopen)


def resolve(asked: Asked) -> Answer:
    """Resolve it: its replay ran."""
    return _ended(asked, asked.desk.unknown_ends.resolve)


def ended(asked: Asked, _done: Entry) -> Answer:
    """The letter as it stands after that."""
    return one(asked)


def _ended(asked: Asked, end: Callable[[Sequence[int], int | None, str, str], list[int]]) -> Answer:
    id_, why = asked.path["id"], str(asked.body.why).strip()
    if not why:
        raise RequestRefused("refused", "Say how you know it. Nothing was changed.")
    it = asked.desk.letters.one(id_).listed
    if not end([id_], None, why, asked.who.name):
        raise RequestRefused(
            "refused", f"Letter {id_} is {it.status}, and how its replay ended is not unknown. Nothing was changed."
        )
    return one(asked)


def _with_value(asked: Asked) -> Shown:
    letter = asked.desk.letters.one(asked.path["id"])
    return with_value(asked.desk.settings, letter) if asked.query.kafka else letter


def _octets(value: shapes.NewValue | None) -> bytes | None:
    if value is None:
        return None
    if value.encoding == "utf-8":
        return value.data.encode()
    try:
        return b64decode(value.data, validate=True)
    except (ValueError, binascii.Error):
        fault: dict[str, Any] = {"where": "body.value.data", "what": "is no base64"}
        raise RequestRefused("invalid", "body.value.data is no base64.", errors=[fault]) from None


def _said(asked: Asked) -> str:
    said = str(asked.body.said).strip()
    if not said:
        raise RequestRefused("refused", "A note has words: nothing was noted.")
    return said


def _notes(asked: Asked) -> Answer:
    letter = asked.desk.letters.one(asked.path["id"])
    return Answer(shapes.Notes.model_validate({"items": [act.to_data() for act in letter.trail]}))
