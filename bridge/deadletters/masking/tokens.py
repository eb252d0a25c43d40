"""What is hidden of a value, as tokens in the text that somebody edits; and back (pure).

A token stays where it stands: elsewhere it would show what it hides, or send it as something else.
"""

from collections.abc import Iterator
from typing import Any, Final

from bridge.deadletters.masking.hidden import Hidden, Path, names, replaced
from bridge.deadletters.mending import json_text
from bridge.errors import EditRefused, NoJson

#: Where a name stands: at no field's place.
NO_PLACE: Final = ("", "")


def with_tokens(found: Hidden, value: bytes) -> bytes:
    """A value as it is edited: JSON with a token, `[masked 1]`, in the place of each part that is hidden."""
    said = dict(zip((path for path, _ in found.found), _tokens(found, value), strict=True))
    return json_text.written(replaced(found.tree, said), value)


def without_tokens(text: str, found: Hidden, value: bytes) -> bytes:
    """The value that an edited text means: with what is hidden, unchanged.

    Parameters:
        value: that was edited.

    Raises:
        EditRefused: the text is no JSON, or a token does not stand where it stood.
    """
    try:
        typed = json_text.read(text)
    except NoJson as error:
        raise EditRefused(f"This is no JSON, and so it cannot be told what of it is masked: {error}.") from None
    stood = dict(zip(_tokens(found, value), found.found, strict=True))
    parts: dict[Path, Any] = {}
    left = set(stood)
    for path, said in _texts(typed):
        for token in [each for each in stood if each in said]:
            before, part = stood[token]
            if said != token or names(path) != names(before):
                raise EditRefused(f"{token} stands at another place: it hides a field, which stays where it is.")
            if token not in left:
                raise EditRefused(f"{token} stands there twice: what your role does not see goes along unchanged.")
            left.remove(token)
            parts[path] = part
    if left:
        raise EditRefused(f"{min(left)} is gone: what your role does not see goes along unchanged.")
    return json_text.written(replaced(typed, parts), value)


def _tokens(found: Hidden, value: bytes) -> list[str]:
    """A token for each part that is hidden, of a word that the value has nowhere."""
    seen = json_text.written(replaced(found.tree, {path: None for path, _ in found.found}), value).decode()
    word = "masked"
    while f"[{word} " in seen:
        word += "'"
    return [f"[{word} {number}]" for number in range(1, len(found.found) + 1)]


def _texts(tree: Any, at: Path = ()) -> Iterator[tuple[Path, str]]:
    """Each text of a value with its path; of a name, one that no field has."""
    match tree:
        case str():
            yield at, tree
        case dict():
            for name, each in tree.items():
                yield NO_PLACE, name
                yield from _texts(each, (*at, name))
        case list():
            for number, each in enumerate(tree):
                yield from _texts(each, (*at, number))
