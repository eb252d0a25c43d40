"""A traceback without its message, so that all letters of one fault have the same; and put together again (pure)."""

from typing import Final

#: In front of what stands for something: U+001A, which tracebacks hardly have.
_MARK: Final = "\x1a"
_MESSAGE: Final = _MARK + "m"
_ITSELF: Final = _MARK + "s"
#: What Python and Java print in front of a message.
_BEFORE: Final = ": "


def without_message(traceback: str, message: str) -> str:
    """The traceback with a mark for each time that it says the message at the end of a line.

    Guarantees: `with_message` makes the traceback of it again, whatever the two are.
    """
    marked = traceback.replace(_MARK, _ITSELF)
    said = _BEFORE + message.replace(_MARK, _ITSELF)
    if not message:
        return marked
    marked = marked.replace(f"{said}\n", f"{_BEFORE}{_MESSAGE}\n")
    return marked.removesuffix(said) + _BEFORE + _MESSAGE if marked.endswith(said) else marked


def with_message(text: str, message: str) -> str:
    """What `without_message` was given."""
    first, *rest = text.split(_MESSAGE)
    return message.join(part.replace(_ITSELF, _MARK) for part in (first, *rest))
