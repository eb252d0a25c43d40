"""The lines of an indented JSON text as a tree, whose objects and lists fold (pure).

It changes no token: numbers keep their digits, and a name that occurs twice is there twice.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

#: A line without its indent: the name of a member, the value, and the comma behind it.
_LINE: Final = re.compile(r' *(?:("(?:[^"\\]|\\.)*+"): )?(.*?)(,?)', re.DOTALL)
#: A string that is complete.
_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_NUMBER: Final = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_OPENED: Final = {"{": "}", "[": "]"}
_WORDS: Final = ("true", "false", "null")


class JsonKind(StrEnum):
    """The kind of a line's value."""

    STRING = "string"
    NUMBER = "number"
    WORD = "word"
    #: An object or a list that its next lines fill.
    OPENED = "opened"
    #: Several tokens, or a part of one.
    RUN = "run"


@dataclass(slots=True)
class JsonNode:
    """A line of an indented JSON text, with the lines that its object or list encloses.

    Attributes:
        name: the token of its name; empty: it has none.
        value: the token of its value, or the bracket that it opens.
        comma: the comma behind it, or behind its closing bracket.
        step: its own part of its path: the decoded name, or the index; `None`: it has no place of its own.
        nodes: the lines within it.
        closed: the line of its closing bracket; empty: that is in no line here.
        is_again: whether its line is in an earlier part of the text.
        is_doubled: whether its object has the name before.
        is_cut: whether it begins or ends in another part.
    """

    name: str
    value: str
    comma: str
    kind: JsonKind
    step: str | None = None
    nodes: "list[JsonNode]" = field(default_factory=list)
    closed: str = ""
    is_again: bool = False
    is_doubled: bool = False
    is_cut: bool = False

    @property
    def line(self) -> str:
        """Return the line without its indent."""
        opened = self.kind is JsonKind.OPENED
        return (f"{self.name}: " if self.name else "") + self.value + ("" if opened else self.comma)


@dataclass(slots=True)
class _OpenedBlock:
    """An object or a list whose end has not come."""

    node: JsonNode
    names: set[str] = field(default_factory=set)
    count: int = 0

    def place(self, node: JsonNode) -> None:
        """Give the next line its place in the object or list."""
        if self.node.value == "{":
            if node.name:
                node.step = _decode_name(node.name)
                node.is_doubled = node.step in self.names
                self.names.add(node.step)
        else:
            node.step = str(self.count)
        self.count += 1


def fold_lines(before: str, lines: Sequence[str], *, goes_on: bool = False) -> list[JsonNode]:
    """Return the lines of a part of an indented JSON text as a tree.

    Parameters:
        before: the text before the part; the objects and lists that it leaves open enclose the part.
        lines: of the part.
        goes_on: whether its last line goes on in the next part.
    """
    *earlier, rest = before.split("\n")
    root: list[JsonNode] = []
    blocks: list[_OpenedBlock] = []
    for line in earlier:
        _take(_read_line(line), blocks, None)
    if rest:
        # Its own begin; the first line of the part is the rest of it.
        _take(_read_line(rest), blocks, None)
    for enclosing, block in zip([root, *(block.node.nodes for block in blocks)], blocks, strict=False):
        block.node.is_again = block.node.is_cut = True
        enclosing.append(block.node)
    for at, line in enumerate(lines):
        is_rest, ends_later = at == 0 and bool(rest), goes_on and at == len(lines) - 1
        if is_rest or ends_later:
            node = JsonNode("", line, "", JsonKind.RUN, is_cut=True)
            if not is_rest and blocks:
                blocks[-1].place(node)
            (blocks[-1].node.nodes if blocks else root).append(node)
        else:
            _take(_read_line(line), blocks, root)
    for block in blocks:
        block.node.is_cut = True
    return root


def count_lines(nodes: Sequence[JsonNode]) -> int:
    """Return the number of lines of nodes."""
    return sum(1 + count_lines(node.nodes) + bool(node.closed) for node in nodes)


def _take(node: JsonNode, blocks: list[_OpenedBlock], root: list[JsonNode] | None) -> None:
    """Put a line into its place: as a member, as the begin of a block, or as the end of one.

    Parameters:
        root: takes the nodes outside of all blocks; `None`: no node is kept.
    """
    if not node.name and blocks and node.value == _OPENED[blocks[-1].node.value]:
        ended = blocks.pop().node
        ended.closed, ended.comma = node.line, node.comma
        return
    if blocks:
        blocks[-1].place(node)
    if root is not None:
        (blocks[-1].node.nodes if blocks else root).append(node)
    if node.kind is JsonKind.OPENED:
        blocks.append(_OpenedBlock(node))


def _read_line(line: str) -> JsonNode:
    match = _LINE.fullmatch(line)
    # Any text has this form.
    assert match is not None
    name, value, comma = match.groups()
    return JsonNode(name or "", value, comma, _find_kind(value))


def _find_kind(value: str) -> JsonKind:
    if value in _OPENED:
        return JsonKind.OPENED
    if _STRING.fullmatch(value):
        return JsonKind.STRING
    if _NUMBER.fullmatch(value):
        return JsonKind.NUMBER
    return JsonKind.WORD if value in _WORDS else JsonKind.RUN


def _decode_name(token: str) -> str:
    """Return the name that a token stands for, or the token's own text if no text can say it."""
    try:
        name: str = json.loads(token, strict=False)
        name.encode()
    except (ValueError, UnicodeEncodeError):
        return token[1:-1]
    return name
