"""What the letters of a group have in common, for somebody who does not see every field of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from bridge.deadletters.letters.common import InCommon, Side, Traits, What, in_common
from bridge.deadletters.letters.filters import Filter
from bridge.deadletters.letters.letter import Status
from bridge.deadletters.masking.hidden import hidden
from bridge.deadletters.masking.masks import Masks, quoted
from bridge.deadletters.masking.quotes import MOST, Quotes
from bridge.deadletters.mending import json_text
from bridge.deadletters.questions.groups import Grouped
from bridge.deadletters.store import pages, standing
from bridge.deadletters.store.database import Database
from bridge.deadletters.store.masked import Contents, contents
from bridge.errors import NoJson
from bridge.settings.masks import Fields

#: Letters that are looked at on either side, the newest; of which so many are in memory at once.
LOOKED_AT: Final = 1_000
_AT_ONCE: Final = 100
#: Bytes of a value up to which it is parsed for this.
LARGEST: Final = 16_384
#: Headers and fields of one letter that are compared, and characters of what they say.
WIDEST: Final = 100
LONGEST: Final = 100
#: Characters of hidden texts that are looked for in the letters of one side; of those behind them, nothing is told.
MOST_COMPARED: Final = 1_000_000


@dataclass(frozen=True)
class Common:
    """Raises DeskUnavailable where the database does not answer."""

    database: Database
    masks: Masks

    def of(self, group: Grouped) -> InCommon:
        """What the newest open letters of a group have in common, beside the newest of its topics in other groups.

        Headers, and the fields of values that are JSON objects, at their top. What is masked is not compared, nor what
        quotes it; of a letter of which that cannot be told, nothing.
        """
        asked = Filter(groups=(group.id,), statuses=(Status.OPEN,))
        with self.database.reading() as connection:
            these = pages.page(connection, asked, LOOKED_AT).letters
            beside = standing.beside(connection, group.id)
            asked = Filter(groups=tuple(beside), topics=group.topics)
            others = pages.page(connection, asked, LOOKED_AT).letters if beside else []
        # What is masked of one topic is compared of none: it would seem not to be there.
        fields = [self.masks.of(topic) for topic in group.topics]
        return in_common(
            self._side([each.id for each in these], fields), self._side([each.id for each in others], fields)
        )

    def _side(self, ids: Sequence[int], fields: Sequence[Fields]) -> Side:
        found: list[Traits] = []
        unread, left = 0, MOST_COMPARED
        for at in range(0, len(ids), _AT_ONCE):
            with self.database.reading() as connection:
                some = contents(connection, ids[at : at + _AT_ONCE], LARGEST)
            for each in some.values():
                known = _known(each, self.masks.of(each.topic), min(left, MOST))
                left -= known.size
                if not known.unknown:
                    tree = _tree(each.value)
                    unread += tree is None
                    found.append(_traits(each, tree, fields, known))
        return Side(found, unread)


def _traits(letter: Contents, tree: dict[str, Any] | None, fields: Sequence[Fields], known: Quotes) -> Traits:
    said = _headers(letter, fields)[:WIDEST]
    if tree is not None:
        said += _fields(tree, fields)[:WIDEST]
    return dict(_seen(said, known))


def _known(letter: Contents, fields: Fields, most: int) -> Quotes:
    """What of it may be quoted in what is shown."""
    values = [hidden(letter.value, fields)]
    return quoted(fields, values, letter.key, letter.headers, whole=letter.is_whole, most=most)


def _tree(value: bytes | None) -> dict[str, Any] | None:
    try:
        tree = None if value is None else json_text.read(value)
    except NoJson:
        return None
    return tree if isinstance(tree, dict) else None


Said = tuple[tuple[What, str], str | None]


def _headers(letter: Contents, fields: Sequence[Fields]) -> list[Said]:
    return [
        (("header", name), _text(value))
        for name, value in letter.headers
        if not any(each.has_header(name) for each in fields)
    ]


def _fields(tree: dict[str, Any], fields: Sequence[Fields]) -> list[Said]:
    return [
        (("field", name), _scalar(value))
        for name, value in tree.items()
        if not any(each.value or each.has((name,)) for each in fields)
    ]


def _seen(said: Sequence[Said], known: Quotes) -> Iterator[Said]:
    """Without names and texts that quote what is hidden; what is long is there, and not compared."""
    for (what, name), says in said:
        if known.masked(name) == name and (says is None or known.masked(says) == says):
            yield (what, name), says if says is None or len(says) <= LONGEST else None


def _text(value: bytes | None) -> str | None:
    try:
        return "" if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def _scalar(value: Any) -> str | None:
    match value:
        case str():
            return value
        case None | bool() | json_text.Number():
            return json_text.written(value).decode()
    return None
