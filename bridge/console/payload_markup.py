"""The HTML of a value's lines: coloured, folded, with what is looked for marked (pure).

Each line is text as `template_filters.seen` shows it, so nothing in a value is markup or is there unseen.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Final

from markupsafe import Markup

from bridge.console.template_filters import attribute, seen
from bridge.deadletters.model.json_fold import JsonKind, JsonNode, count_lines
from bridge.deadletters.model.payload_view import DEEPEST
from bridge.formats.text_forms import format_count

#: Most lines of a part that is open at first; of longer ones, what is deeper than this stays folded.
MAX_OPENED_LINES: Final = 150
OPENED_DEPTH: Final = 2
#: Characters from which on a string has a box of its own.
LONG_STRING: Final = 1_500
#: Characters of its first value that a folded object or list shows.
_FOLDED: Final = 60
_DOUBLED: Final = '<span class="tag is-warn">name occurs twice</span>'
_CLASSES: Final = {JsonKind.STRING: "s", JsonKind.NUMBER: "d", JsonKind.WORD: "d", JsonKind.RUN: "u"}


class TextMarks:
    """Marks what an error quotes, and what a person searches for.

    Parameters:
        quoted: texts, as they are written.
        search: a text in either case.

    Attributes:
        count: the marks so far.
    """

    def __init__(self, quoted: Collection[str] = (), search: str = "") -> None:
        # The longest first, so that a text that begins with another one wins.
        some = map(re.escape, sorted(quoted, key=len, reverse=True))
        wanted = [f"(?P<search>(?i:{re.escape(search)}))"] if search else []
        self._pattern = re.compile("|".join([*wanted, *some])) if search or quoted else None
        self._is_first = True
        self.count = 0

    def find(self, line: str) -> list[tuple[int, int, bool]]:
        """Return the places in a line: begin, end, and whether it was searched for."""
        if self._pattern is None:
            return []
        found = [(*match.span(), match.lastgroup == "search") for match in self._pattern.finditer(line)]
        self.count += len(found)
        return found

    def mark(self, text: str, *, is_search: bool) -> str:
        """Return the markup of a marked text; the first one that was searched for is where the page is opened."""
        first, self._is_first = is_search and self._is_first, self._is_first and not is_search
        return f"<mark{' class=hit' if is_search else ''}{' id=match' if first else ''}>{seen(text)}</mark>"


def render_lines(lines: Sequence[str], marks: TextMarks) -> Markup:
    """Return lines of text as items of a list."""
    return Markup("".join(f"<li>{_render_text(line, marks.find(line), 0, marks)}</li>\n" for line in lines))


def render_nodes(nodes: Sequence[JsonNode], marks: TextMarks) -> Markup:
    """Return the lines of a JSON text, with objects and lists that fold."""
    depth = OPENED_DEPTH if count_lines(nodes) > MAX_OPENED_LINES else DEEPEST + 1
    return Markup("".join(_render_nodes(nodes, marks, depth)))


def _render_nodes(nodes: Sequence[JsonNode], marks: TextMarks, opened: int) -> Iterator[str]:
    """Yield the HTML of nodes.

    Parameters:
        opened: the levels that are open.
    """
    for node in nodes:
        if node.kind is not JsonKind.OPENED:
            yield f'<div class="r"{_render_data(node)}>{_render_line(node, marks)}</div>\n'
            continue
        before = marks.count
        summary = _render_line(node, marks)
        inner = "".join(_render_nodes(node.nodes, marks, opened - 1))
        is_open = opened > 0 or marks.count > before or node.is_again
        again = " again" if node.is_again else ""
        yield (
            f'<details{" open" if is_open else ""}><summary class="r{again}"{_render_data(node)}>{summary}</summary>'
            f'<div class="in">{inner}</div>'
        )
        if node.closed:
            yield f'<div class="r z"><bdi>{node.closed}</bdi></div>'
        yield "</details>\n"


def _render_data(node: JsonNode) -> str:
    step = "" if node.step is None else f' data-k="{attribute(node.step)}"'
    return step + (" data-cut" if node.is_cut else "")


def _render_line(node: JsonNode, marks: TextMarks) -> str:
    line = node.line
    places = marks.find(line)
    found = []
    begins = 0
    if node.name:
        begins = len(node.name)
        found.append(f'<span class="k">{_render_text(node.name, places, 0, marks)}: </span>')
        begins += 2
    value = _render_text(node.value, places, begins, marks)
    if node.kind is JsonKind.OPENED:
        return "".join([*found, value, _render_fold(node)])
    long = len(node.value) > LONG_STRING
    box = f'<span class="long" role="group" aria-label="Long value" tabindex="0">{value}</span>' if long else value
    found.append(f'<span class="{_CLASSES[node.kind]}">{box}</span>{node.comma}')
    if node.is_doubled:
        found.append(_DOUBLED)
    return "".join(found)


def _render_fold(node: JsonNode) -> str:
    """Return what stands behind an opening bracket: the number of members while it is folded, and what it lacks."""
    what = "member" if node.value == "{" else "item"
    first = next((child.line for child in node.nodes if child.kind is not JsonKind.OPENED), "").removesuffix(",")
    begin = f" {first[:_FOLDED]}…" if len(first) > _FOLDED else f" {first}" if first else ""
    count = format_count(len(node.nodes), what)
    found = f'<span class="fold"><bdi>{seen(begin)}</bdi> · {count} {node.closed or "…"}</span>'
    if node.is_doubled:
        found += _DOUBLED
    return found + ('<span class="tag">begins in an earlier part</span>' if node.is_again else "")


def _render_text(text: str, places: Sequence[tuple[int, int, bool]], begins: int, marks: TextMarks) -> str:
    """Return a part of a line with its marks.

    Parameters:
        places: of marks in the line.
        begins: the place of the text in the line.
    """
    found: list[str] = []
    at = 0
    for start, end, is_search in places:
        start, end = max(start - begins, at), min(end - begins, len(text))
        if end > start:
            found += [seen(text[at:start]), marks.mark(text[start:end], is_search=is_search)]
            at = end
    return f"<bdi>{''.join(found)}{seen(text[at:])}</bdi>"
