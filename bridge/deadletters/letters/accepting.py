"""Whether a letter is one that a filter means, asked of the letter itself (pure)."""

from bridge.deadletters.letters import words
from bridge.deadletters.letters.filters import Filter
from bridge.deadletters.letters.letter import Letter
from bridge.errors import FilterFault

#: What only the database knows of a letter.
_OF_THE_DATABASE = ("ids", "groups", "statuses", "plans", "died_again")


def check(asked: Filter) -> None:
    """Refuse what cannot be told of a letter in a topic.

    Raises:
        FilterFault: with what to do.
    """
    if unknown := [name.replace("_", " ") for name in _OF_THE_DATABASE if getattr(asked, name)]:
        raise FilterFault(
            f"A letter in a topic has no {', '.join(unknown)}: the database has them, without --from-topic."
        )


def accepts(asked: Filter, letter: Letter) -> bool:
    """Whether a filter means a letter, as the database would say; of what `check` refuses nothing is asked."""
    kind = letter.kind
    one_of = (
        (asked.handlers, kind.group.handler),
        (asked.topics, kind.topic),
        (asked.reasons, kind.reason),
        (asked.versions, kind.version),
        (asked.origins, kind.origin),
        (asked.causes, kind.cause),
    )
    return (
        all(not wanted or had in wanted for wanted, had in one_of)
        and (not asked.exceptions or any(_is_named(kind.group.error_class, name) for name in asked.exceptions))
        and (asked.since is None or letter.failed_at >= asked.since)
        and (asked.until is None or letter.failed_at < asked.until)
        and (asked.key is None or letter.key == asked.key)
        and all((name, value.encode("utf-8", "surrogateescape")) in letter.headers for name, value in asked.headers)
        and letter.runs >= (asked.attempts or 0)
        and (not asked.text or _has_words(asked, letter))
    )


def _is_named(error_class: str, name: str) -> bool:
    return error_class == name or error_class.endswith(f".{name}")


def _has_words(asked: Filter, letter: Letter) -> bool:
    found = words.of(letter.error_message, letter.key, letter.headers, letter.value)
    return set(words.words(asked.text)) <= set(found)
