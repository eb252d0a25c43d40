"""The reduction of a value to what still fails in the same way (delta debugging; pure but for the oracle)."""

import time
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from bridge.deadletters.model import exact_json
from bridge.errors import NoJson

#: The most trials, and the longest time for all of them, in seconds.
TRIALS: Final = 500
SECONDS: Final = 30.0

#: The place of a part in a JSON tree.
TreePath = tuple[str | int, ...]
#: The oracle: whether a value fails as the original does.
Fails = Callable[[bytes], bool]


class SmallerValue(NamedTuple):
    """The result of a reduction.

    Attributes:
        is_least: whether no single step makes it smaller; else trials or time ran out.
    """

    value: bytes
    is_least: bool


class ValueMinimizer:
    """The reduction of one value.

    Parameters:
        fails: asked once about each candidate.
    """

    def __init__(self, fails: Fails, trials: int = TRIALS, seconds: float = SECONDS) -> None:
        self._fails, self._trials, self._until = fails, trials, time.monotonic() + seconds
        #: By digest of a candidate, since values may be large.
        self._known: dict[bytes, bool] = {}
        self._best = b""

    def reduce(self, value: bytes) -> SmallerValue:
        """Return the least value that still fails: of JSON with fewer members, items and characters; else fewer bytes.

        Parameters:
            value: it fails.
        """
        self._best = value
        try:
            self._reduce_any(value)
        except TimeoutError:
            return SmallerValue(self._best, False)
        return SmallerValue(self._best, True)

    def _reduce_any(self, value: bytes) -> None:
        try:
            self._reduce_tree(exact_json.parse_json(value), value)
        except (NoJson, RecursionError):
            self._reduce_bytes(value)

    def _try(self, candidate: bytes) -> bool:
        # What makes the candidates takes time too: the steps of a large value are as many as its characters.
        if time.monotonic() > self._until:
            raise TimeoutError
        if len(candidate) >= len(self._best):
            return False
        name = blake2b(candidate, digest_size=16).digest()
        if name not in self._known:
            if len(self._known) >= self._trials:
                raise TimeoutError
            self._known[name] = self._fails(candidate)
        if self._known[name]:
            self._best = candidate
        return self._known[name]

    def _reduce_tree(self, tree: Any, like: bytes) -> None:
        before = None
        while before != self._best:
            before = self._best
            for path in [*_list_paths(tree)]:
                if _has(tree, path):
                    tree = self._reduce_part(tree, path, like)

    def _reduce_part(self, tree: Any, path: TreePath, like: bytes) -> Any:
        """Return the tree with a part made as small as it goes."""

        def try_part(part: Any) -> bool:
            return self._try(exact_json.write_json(_put(tree, path, part), like))

        part = _find(tree, path)
        if isinstance(part, dict):
            kept = _reduce_list(list(part), lambda names: try_part({name: part[name] for name in names}))
            return _put(tree, path, {name: part[name] for name in kept})
        if isinstance(part, list):
            return _put(tree, path, _reduce_list(part, try_part))
        for simple in _list_simpler(part):
            if try_part(simple):
                return _put(tree, path, simple)
        if isinstance(part, str):
            return _put(tree, path, "".join(_reduce_list(list(part), lambda some: try_part("".join(some)))))
        return tree

    def _reduce_bytes(self, value: bytes) -> None:
        _reduce_list([value[at : at + 1] for at in range(len(value))], lambda some: self._try(b"".join(some)))


def _reduce_list(items: list[Any], fails: Callable[[list[Any]], bool]) -> list[Any]:
    """Return the items of which none can be left out, by ever smaller runs of them."""
    size = len(items)
    while size:
        at = 0
        while at < len(items):
            rest = items[:at] + items[at + size :]
            if fails(rest):
                items = rest
            else:
                at += size
        size //= 2
    return items


def _list_simpler(part: Any) -> Sequence[Any]:
    if isinstance(part, str):
        return [""] if part else []
    if isinstance(part, exact_json.ExactNumber):
        return [exact_json.ExactNumber(text) for text in ("0", "1") if len(text) < len(part.text)]
    return []


def _list_paths(tree: Any, at: TreePath = ()) -> Iterator[TreePath]:
    yield at
    if isinstance(tree, dict):
        for name, part in tree.items():
            yield from _list_paths(part, (*at, name))
    elif isinstance(tree, list):
        for number, part in enumerate(tree):
            yield from _list_paths(part, (*at, number))


def _has(tree: Any, path: TreePath) -> bool:
    try:
        _find(tree, path)
    except (KeyError, IndexError, TypeError):
        return False
    return True


def _find(tree: Any, path: TreePath) -> Any:
    for step in path:
        if isinstance(tree, str):
            raise TypeError
        tree = tree[step]
    return tree


def _put(tree: Any, path: TreePath, part: Any) -> Any:
    """Return a tree with another part at a path."""
    if not path:
        return part
    first, rest = path[0], path[1:]
    if isinstance(tree, dict):
        return {name: _put(each, rest, part) if name == first else each for name, each in tree.items()}
    return [_put(each, rest, part) if number == first else each for number, each in enumerate(tree)]
