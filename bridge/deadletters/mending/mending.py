"""Letters mended: each goes back with a new value that its handler takes, and what it had before is kept."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from celery import Celery

from bridge.deadletters.actions.holders import holders, too_late
from bridge.deadletters.letters.filters import Filter
from bridge.deadletters.letters.letter import Status
from bridge.deadletters.mending.by_hand import ELSEWHERE, Offered, offered, typed
from bridge.deadletters.mending.checking import Checked
from bridge.deadletters.mending.differences import changes, difference
from bridge.deadletters.mending.patched import Pass
from bridge.deadletters.mending.patching import Patch
from bridge.deadletters.mending.validating import Verdict, verdict
from bridge.deadletters.plan.plan import Counts, ItemState, Options, Plan, State, What
from bridge.deadletters.store import clock, contents, edits, items, plans, trail, values, waves, weighing
from bridge.deadletters.store.database import Database
from bridge.deadletters.store.edits import Edit
from bridge.deadletters.store.items import Item
from bridge.deadletters.store.matching import matching
from bridge.deadletters.store.values import Valued
from bridge.errors import EditRefused, NoSuchLetter
from bridge.upkeep.facts import letters as letters_said

#: Letters of one look at the database; their values are in memory at once.
AT_ONCE: Final = 500


class Difference(NamedTuple):
    """How a plan changes a letter's value, as a unified diff."""

    letter_id: int
    text: str


class Sample(NamedTuple):
    """What a patch would make of a letter's value.

    Attributes:
        difference: from the one that it has, as a unified diff; "": it gets none.
        why: it gets none.
    """

    letter_id: int
    difference: str
    why: str


class Tried(NamedTuple):
    """What a new value of a letter would be.

    Attributes:
        value: byte for byte.
        said: what its handler says of it.
        difference: from the one that it has, as a unified diff; "" where that is the same.
        changes: how many places of it are changed.
        shown: what stands for it, so that only what was looked at is sent.
    """

    value: bytes
    said: Verdict
    difference: str
    changes: int
    shown: bytes


@dataclass(frozen=True)
class Mending:
    """What is done to the values of letters. Every method raises DeskUnavailable where the database does not answer."""

    app: Celery
    database: Database

    def edit(self, letter_id: int, value: bytes | None, by: str, why: str = "", *, force: bool = False) -> Plan:
        """A plan that sends a letter back with another value. Key and headers stay: they say which record it is.

        Parameters:
            value: byte for byte as it is to be sent; `None` is a tombstone.
            force: also where its handler does not take it, or is not known here.

        Raises:
            NoSuchLetter: there is none of that number.
            EditRefused: it is not open, the value is the one that it has, or its handler does not take it; says why.
        """
        letter, failures = self._open(letter_id)
        if letter.is_kept and letter.value == value:
            raise EditRefused(f"Letter {letter_id} has this value already: replay it as it is.")
        said = verdict(self.app, letter.handler, value)
        if not said.ok and not force:
            raise EditRefused(f"Nothing was sent. {_refused(said.ok)}: {said.why}. To send it anyway: --force.")
        asked = Filter(ids=(letter_id,)).to_data()
        with self.database.writing() as connection:
            plan_id, at = plans.add(connection, What.REPLAY, by, why, asked, Options())
            items.add(connection, plan_id, [Item(1, letter_id, None, failures)], canary=False)
            edits.add(connection, [Edit(letter_id, plan_id, at, by, "edit", value)])
            handlers = weighing.by_handler(connection, plan_id)
            counts = Counts(letters=1, handlers=handlers, edits=Pass(changed=1).to_data())
            plans.counted(connection, plan_id, counts)
            words = f"a value of {len(value):,} bytes" if value is not None else "a tombstone"
            trail.write(
                connection, at, by, "edit", f"{words}; {why}".rstrip("; "), letter_id=letter_id, plan_id=plan_id
            )
            return _known(plans.one(connection, plan_id))

    def patch(
        self, asked: Filter, patch: Patch, options: Options, by: str, why: str = "", *, force: bool = False
    ) -> Plan:
        """A plan that sends the open letters of a filter back, each with what a JSON Patch makes of its value.

        Left out, with the reason, is what is no JSON, to what the patch does not apply, what it does not change, and
        what its handler would not take after it. Nothing is sent yet.

        Parameters:
            force: also what its handler would not take.

        Raises:
            FilterFault: it asks for letters that are not open.
        """
        chosen = asked.only_open()
        said = {"filter": chosen.to_data(), "patch": patch.text}
        with self.database.writing() as connection:
            plan_id, at = plans.add(connection, What.REPLAY, by, why, said, options)
            plans.move(connection, plan_id, [State.PLANNED], State.MAKING)
            count = items.freeze(connection, plan_id, matching(chosen), canary=False)
            words = f"plan {plan_id}: to patch {letters_said(count)}" + (f": {why}" if why else "")
            trail.write(connection, at, by, "patch", words, plan_id=plan_id)
        done = Pass()
        for found in self._of_plan(plan_id):
            self._change(plan_id, found, patch, done, by, force)
        with self.database.writing() as connection:
            handlers = weighing.by_handler(connection, plan_id)
            plans.counted(connection, plan_id, Counts(letters=count, handlers=handlers, edits=done.to_data()))
            if options.canary:
                waves.cut(connection, plan_id)
            plans.move(connection, plan_id, [State.MAKING], State.PLANNED)
            return _known(plans.one(connection, plan_id))

    def samples(self, letters: Iterable[int], patch: Patch) -> list[Sample]:
        """What a patch would make of some letters; those that are gone are left out, and nothing is kept."""
        with self.database.reading() as connection:
            found = [letter for id_ in letters if (letter := values.one(connection, id_))]
        made = []
        for letter in found:
            patched = Pass().one(self.app, letter, patch, force=False)
            changed = "" if patched.value is None else difference(letter.value, patched.value)
            made.append(Sample(letter.id, changed, patched.why))
        return made

    def check(self, asked: Filter) -> Checked:
        """Which letters of a filter their handlers would take now, as they are or after `upgrade`; nothing is sent."""
        found, after = Checked(), 0
        while some := self._after(asked, after):
            found.look(self.app, some)
            after = some[-1].id
        return found

    def differences(self, plan_id: int, count: int = 10) -> list[Difference]:
        """How a plan changes the first of its letters that it changes."""
        with self.database.reading() as connection:
            found = values.edited(connection, plan_id, count)
        return [Difference(letter.id, difference(letter.value, value)) for letter, value in found]

    def text(self, letter_id: int) -> str:
        """A letter's value, to be edited.

        Raises:
            NoSuchLetter: there is none of that number.
            EditRefused: it is not open, or its value is no text.
        """
        letter, _ = self._open(letter_id)
        try:
            return "" if not letter.is_kept or letter.value is None else letter.value.decode()
        except UnicodeDecodeError:
            raise EditRefused(f"The value of letter {letter_id} is no text: give the new one as a file.") from None

    def offered(self, letter_id: int) -> Offered:
        """A letter's value, to be edited in a form.

        Raises:
            NoSuchLetter: there is none of that number.
            EditRefused: it is not open, or its value is not for a form; says what to do.
        """
        letter, _ = self._open(letter_id)
        if not letter.is_kept:
            raise EditRefused(f"A value of {letter.size:,} bytes is too large for a form: {ELSEWHERE}.")
        return offered(letter.value)

    def tried(self, letter_id: int, text: str) -> Tried:
        """What a form's text would be as the letter's value; nothing is sent.

        Raises:
            NoSuchLetter, EditRefused: as `offered`.
        """
        letter, _ = self._open(letter_id)
        return self.tried_value(letter_id, typed(text, letter.value))

    def tried_value(self, letter_id: int, value: bytes) -> Tried:
        """The same of a value.

        Raises:
            NoSuchLetter, EditRefused: as `offered`.
        """
        before = self.offered(letter_id)
        letter, _ = self._open(letter_id)
        found = difference(letter.value, value)
        # Of text, a line break at its end is a change that no line shows.
        count = changes(found) or int(value != letter.value and not before.is_json)
        return Tried(value, verdict(self.app, letter.handler, value), found, count, value)

    def takes(self, handler: str, value: bytes | None) -> Verdict:
        """Whether a handler would take a value now, by the code that is here."""
        return verdict(self.app, handler, value)

    def _open(self, letter_id: int) -> tuple[Valued, int]:
        """A letter that may be sent back, and how often it has died."""
        with self.database.reading() as connection:
            letter = values.one(connection, letter_id)
            standing = contents.standings(connection, [letter_id]).get(letter_id)
            by = holders(connection, [standing] if standing else [])
        if letter is None or standing is None:
            raise NoSuchLetter(f"There is no letter {letter_id}.")
        if standing.status is not Status.OPEN:
            raise EditRefused(f"Letter {letter_id}: {too_late(standing, by)}: only what is open is sent back.")
        return letter, standing.failures

    def _after(self, asked: Filter, after: int) -> list[Valued]:
        with self.database.reading() as connection:
            return values.matching_after(connection, asked, after, AT_ONCE)

    def _of_plan(self, plan_id: int) -> Iterator[list[tuple[int, Valued]]]:
        after = 0
        while True:
            with self.database.reading() as connection:
                found = values.of_plan_after(connection, plan_id, after, AT_ONCE)
            if not found:
                return
            yield found
            after = found[-1][0]

    def _change(
        self, plan_id: int, found: Iterable[tuple[int, Valued]], patch: Patch, done: Pass, by: str, force: bool
    ) -> None:
        """Give some letters of a plan their new values, and leave those out that get none."""
        made, left = [], {}
        for position, letter in found:
            patched = done.one(self.app, letter, patch, force=force)
            if patched.value is None:
                left[position] = patched.why
            else:
                made.append((letter.id, patched.value))
        with self.database.writing() as connection:
            at = clock.now(connection)
            edits.add(connection, (Edit(id_, plan_id, at, by, "patch", value) for id_, value in made))
            items.end(connection, plan_id, left, ItemState.SKIPPED, at)


def _refused(ok: bool | None) -> str:
    return "Its handler does not take this value" if ok is False else "Whether its handler takes this value is unknown"


def _known(plan: Plan | None) -> Plan:
    assert plan is not None
    return plan
