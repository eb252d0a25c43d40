"""Scripts for Redis: each in a `.lua` file of its own, in the folder ``lua`` of the package that calls it.

A script is composed of two things, and of nothing else:

* functions that several have in common: a line ``-- @include NAME`` stands for the text of ``NAME.lua`` beside it;
* values that Python decides (the number of a fate, the size of a page): `script` puts them in front, as Lua locals.

The comment at a file's top says what its KEYS and ARGV are, and what it returns. Redis gets no comments: a script that
is sent with each call is short, and the lines that its errors name are those of the file where nothing is included.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

import redis

_INCLUDE = re.compile(r"^-- @include (\w+)$", re.MULTILINE)
_COMMENT = re.compile(r"^[ \t]*--.*$", re.MULTILINE)


@dataclass(frozen=True)
class Script:
    """A Lua script and the name under which Redis remembers it."""

    text: str
    sha: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sha", hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest())

    def run(self, client: Any, keys: list[Any], args: list[Any]) -> Any:
        """Call it, loading it where Redis does not know it (it forgets at a restart). Raises redis-py's errors."""
        try:
            return client.evalsha(self.sha, len(keys), *keys, *args)
        except redis.exceptions.NoScriptError:
            return client.eval(self.text, len(keys), *keys, *args)


def script(package: str, name: str, values: str = "") -> Script:
    """Return the script ``lua/NAME.lua`` of a package.

    Parameters:
        package: the package's full name.
        name: the file's, without ``.lua``.
        values: Lua statements to put in front, on one line (the file's lines keep their numbers).

    Raises `FileNotFoundError` for a file, or an included one, that is not installed.
    """
    folder = files(package) / "lua"

    def text_of(name: str) -> str:
        return _INCLUDE.sub(lambda found: text_of(found[1]), (folder / f"{name}.lua").read_text("utf-8"))

    return Script(f"{values} {_COMMENT.sub('', text_of(name))}".strip(" "))
