"""What is promised of JSON that folds: its lines are those of the text, in their places, and each knows its path."""

import json
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from bridge.deadletters.model import payload_view
from bridge.deadletters.model.json_fold import JsonKind, fold_lines
from bridge.deadletters.model.payload_view import PayloadMode, view_payload

NAMES = st.text(alphabet='ab"\\:,{}[] \n\u202eé', max_size=4)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet='ab"\\:,{}[] \n', max_size=6),
    lambda some: st.lists(some, max_size=4) | st.dictionaries(NAMES, some, max_size=4),
    max_leaves=30,
)


def flat(nodes, depth=0):
    """The lines of a tree, those of earlier parts left out."""
    for node in nodes:
        if not node.is_again:
            yield "  " * depth + node.line
        yield from flat(node.nodes, depth + 1)
        if node.closed:
            yield "  " * depth + node.closed


def paths(nodes, at=()):
    """The paths of all that has a place, with their lines."""
    for node in nodes:
        here = at if node.step is None else (*at, node.step)
        yield here, node
        yield from paths(node.nodes, here)


def resolve(value, path):
    """What a path of names and indexes leads to."""
    for step in path:
        value = value[int(step)] if isinstance(value, list) else value[step]
    return value


@given(JSON)
def test_the_lines_of_the_tree_are_the_lines_of_the_text_and_each_path_leads_to_its_value(value):
    found = view_payload(json.dumps(value).encode())
    assert list(flat(found.nodes)) == list(found.lines)
    for path, node in paths(found.nodes):
        there = resolve(value, path)
        if node.kind is JsonKind.OPENED:
            assert len(node.nodes) == len(there)
        else:
            assert json.loads(node.value) == there


@given(JSON, st.integers(1, 12))
def test_parts_of_a_text_are_all_its_lines_with_the_paths_that_they_have_in_the_whole(value, most):
    text = json.dumps({"list": value, "last": [[value]]}).encode()
    whole = [(path, node.line) for path, node in paths(view_payload(text).nodes)]
    with patch.object(payload_view, "LINES", most):
        parts = [view_payload(text, PayloadMode.PRETTY, 0)]
        while (following := parts[-1].next) is not None:
            parts.append(view_payload(text, PayloadMode.PRETTY, following))
    assert [line.strip() for part in parts for line in flat(part.nodes)] == [
        line.strip() for line in view_payload(text).lines
    ]
    found = [(path, node.line) for part in parts for path, node in paths(part.nodes) if not node.is_again]
    assert [each for each in found if each[1] not in ("}", "]", "},", "],")] == whole
    for part in parts[:-1]:
        assert any(node.is_cut for _, node in paths(part.nodes)), "a part that is not the last ends within a block"


def test_a_name_that_occurs_twice_is_there_twice_and_the_second_one_says_so():
    (root,) = view_payload(b'{"a": 1, "\\u0061": 2, "b": {"a": 3}}').nodes
    assert [(node.line, node.is_doubled) for node in root.nodes] == [
        ('"a": 1,', False),
        ('"a": 2,', True),
        ('"b": {', False),
    ]


def test_numbers_keep_their_digits_and_half_a_surrogate_pair_its_escape():
    (root,) = view_payload(b'{"big": 123456789012345678901234567890.10, "half\\ud83d": "\\ude00"}').nodes
    assert [node.line for node in root.nodes] == [
        '"big": 123456789012345678901234567890.10,',
        '"half\\ud83d": "\\ude00"',
    ]
    assert root.nodes[1].step == "half\\ud83d"


def test_a_string_that_is_cut_is_one_line_in_each_part_and_no_bracket_in_it_folds():
    text = '["' + "{" * payload_view.PART + '\\n]", 1]'
    first = view_payload(text.encode(), PayloadMode.PRETTY, 0)
    second = view_payload(text.encode(), PayloadMode.PRETTY, first.next)
    assert [(node.kind, node.is_cut) for node in first.nodes[0].nodes] == [(JsonKind.RUN, True)]
    rest, one = second.nodes[0].nodes
    assert (rest.kind, rest.is_cut, rest.step) == (JsonKind.RUN, True, None)
    assert (one.value, one.step) == ("1", "1")


def test_what_is_no_json_is_lines_all_the_same():
    nodes = fold_lines("", ["}", '"a": ', "]]", "{"])
    assert [node.line for node in nodes] == ["}", '"a": ', "]]", "{"]
