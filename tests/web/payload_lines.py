"""The lines of a value that a page shows: of a text, or of JSON that folds."""

from html.parser import HTMLParser
from typing import Final

#: What the page adds to the lines: also those of an earlier part that enclose this one.
_OURS: Final = frozenset({"fold", "tag", "again"})
_VOID: Final = frozenset({"input", "meta", "link", "br"})


class _Lines(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self._open: list[tuple[str, frozenset[str]]] = []
        self.feed(page)
        self.close()

    def _has(self, *classes: str) -> bool:
        return any(names & set(classes) for _, names in self._open)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin a line, if it is one."""
        if tag in _VOID:
            return
        names = frozenset((dict(attrs).get("class") or "").split())
        inside = self._has("json")
        is_text = tag == "li" and any(each == "ol" and "code" in some for each, some in self._open)
        if is_text or (inside and "r" in names and "again" not in names):
            self.found.append("  " * sum("in" in some for _, some in self._open) if inside else "")
        self._open.append((tag, names))

    def handle_endtag(self, tag: str) -> None:
        """Leave an element."""
        while self._open and self._open.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        """Add to the line."""
        in_text = any(tag == "li" for tag, _ in self._open) and self._has("code")
        if (in_text or (self._has("json") and self._has("r"))) and not self._has(*_OURS):
            self.found[-1] += data


def read_lines(page: str) -> list[str]:
    """The lines of the value on a page."""
    return _Lines(page).found
