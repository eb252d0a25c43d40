"""The location that raised an exception, read from the text of a Python or Java traceback (pure).

The location is part of a failure group's identity, so it must be the same on every machine and in the next version of
the code: a path from the top package's folder on and the function's name, without a line.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from typing import Final, NamedTuple

#: Most characters of a traceback that are read, from its end, where the last exception is.
READ: Final = 100_000
#: The location of a value that is refused before the user's code runs: it is no JSON, or does not fit the model.
CODEC: Final = "the codec or the model"
#: The modules that refuse it.
_CODEC: Final = (
    "tasks/declaration/value_codec.py",
    "tasks/declaration/message_codec.py",
    "tasks/declaration/cloud_events.py",
)
#: Most characters of a location; a longer one keeps its end.
LONGEST: Final = 200

#: The lines between an exception and the one that it caused, in a Python traceback.
CHAINED: Final = (
    "The above exception was the direct cause of the following exception:",
    "During handling of the above exception, another exception occurred:",
)
_BEGINS: Final = "Traceback (most recent call last):"
#: The characters that Python draws before the lines of an exception group.
_DRAWN: Final = " \t|+-"
#: Frames that Python 3.12 no longer has for the same line of code.
_INLINED: Final = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>"})
#: The folders of installed packages and of Python's own library.
_INSTALLED: Final = ("site-packages/", "dist-packages/")
_LIBRARY: Final = re.compile(r"/(?:lib(?:64)?/)?(?:python|pypy)3\.?[0-9]{1,3}t?/", re.IGNORECASE)
#: The packages of this project.
_OURS: Final = frozenset({"bridge", "lossless", "tasks"})

#: Packages whose frames say nothing about the user's code.
_NOT_THEIRS: Final = (
    *("java.", "javax.", "jakarta.", "jdk.", "sun.", "com.sun.", "kotlin.", "kotlinx.", "scala.", "groovy.lang."),
    *("org.apache.kafka.", "org.springframework.", "io.confluent."),
)
#: Names that a JVM generates anew at each start: `Shop$$Lambda$14/0x0000`, `Shop$$SpringCGLIB$$0`.
_MADE_UP: Final = re.compile(r"\$\$[^.(]*")


class _Frame(NamedTuple):
    """A frame of a traceback."""

    path: str
    function: str


def find_failure_location(traceback: str, handler: str = "") -> str:
    """Return where the last exception was raised: the deepest frame of the user's code, else the deepest of all.

    Parameters:
        traceback: as Python or a JVM prints it, or a part of that, or anything else.
        handler: its name; its package is user code, even if installed.

    Returns:
        `orders/bank.py:pay`; for Java `shop.Bank.pay`; `CODEC`; at most `LONGEST` characters, "" without a frame.
    """
    lines = traceback[-READ:].splitlines()
    return (_find_python_location(lines, handler) or _find_java_location(lines))[-LONGEST:]


def is_frame(line: str) -> bool:
    """Return whether a line of a traceback is a frame of Python or Java."""
    return _is_frame(line) or bool(_java_frame(line))


def is_user_frame(line: str, handler: str = "") -> bool:
    """Return whether a line of a traceback is a frame of the user's code.

    Parameters:
        handler: as for `find_failure_location`.
    """
    if _is_frame(line):
        frames = list(_frames([line]))
        root = _find_root(frames, handler)
        return any(_is_users(_shorten_path(frame.path, root, handler), frame, handler) for frame in frames)
    frame = _java_frame(line)
    return bool(frame) and not frame.startswith(_NOT_THEIRS)


def _find_python_location(lines: Sequence[str], handler: str) -> str:
    found = [frames for part in _exceptions(lines) if (frames := list(_frames(part)))]
    # Without user frames the exception was raised outside of a handler; its cause may have user frames.
    for frames in found:
        places = _places(frames, handler)
        if users := [place for place in places if _is_users(*place, handler)]:
            return _write_location(*users[-1])
    if not found:
        return ""
    path, frame = _places(found[0], handler)[-1]
    return CODEC if path in _CODEC else _write_location(path, frame)


def _places(frames: Sequence[_Frame], handler: str) -> list[tuple[str, _Frame]]:
    root = _find_root(frames, handler)
    return [(_shorten_path(frame.path, root, handler), frame) for frame in frames]


def _write_location(path: str, frame: _Frame) -> str:
    return f"{path}:{frame.function}"


def _exceptions(lines: Sequence[str]) -> Iterator[Iterable[str]]:
    """Yield the lines of each exception of a chain, the last first, without messages, which may look like frames."""
    end = len(lines)
    for at in range(len(lines) - 1, -2, -1):
        if at < 0 or lines[at].lstrip(_DRAWN).rstrip() in CHAINED:
            yield _without_message(lines[at + 1 : end])
            end = at


def _without_message(lines: Sequence[str]) -> Iterable[str]:
    begins = next((at for at, line in enumerate(lines) if line.rstrip().endswith(_BEGINS)), None)
    if begins is None:
        # The beginning of the traceback was cut off.
        return lines
    drawn = len(lines[begins]) - len(lines[begins].lstrip(_DRAWN))
    return takewhile(lambda line: line[drawn : drawn + 1] in ("", " ", "\t"), lines[begins + 1 :])


def _is_frame(line: str) -> bool:
    return line.lstrip(_DRAWN).startswith('File "')


def _frames(lines: Iterable[str]) -> Iterator[_Frame]:
    for line in lines:
        if not _is_frame(line):
            continue
        # `File "/app/orders/bank.py", line 5, in pay`
        path, _, rest = line.lstrip(_DRAWN)[len('File "') :].rpartition('", line ')
        _, said, function = rest.partition(", in ")
        if path and said and function.strip() not in _INLINED:
            yield _Frame(path.replace("\\", "/"), function.strip())


def _find_root(frames: Iterable[_Frame], handler: str) -> str:
    """Return the folder from which the handler's module is imported, if a frame is in the module; else ""."""
    module = handler.rpartition(".")[0].replace(".", "/")
    if not module:
        return ""
    ends = (f"/{module}.py", f"/{module}/__init__.py")
    return next(
        (frame.path[: -len(end) + 1] for frame in frames for end in ends if frame.path.endswith(end)),
        "",
    )


def _shorten_path(path: str, root: str, handler: str) -> str:
    """Return a path from the top package's folder on, if that can be inferred; else the file in its folder."""
    for installed in _INSTALLED:
        if installed in path:
            return path.rpartition(installed)[2]
    if (library := _LIBRARY.search(path)) is not None:
        return path[library.end() :]
    if root and path.startswith(root):
        return path[len(root) :]
    folders = path.split("/")
    for tops in ({handler.partition(".")[0]} - {""}, _OURS):
        top = max((at for at, folder in enumerate(folders[:-1]) if folder in tops), default=None)
        if top is not None:
            return "/".join(folders[top:])
    return "/".join(folders[-2:])


def _is_users(path: str, frame: _Frame, handler: str) -> bool:
    top = path.partition("/")[0].removesuffix(".py")
    if top == handler.partition(".")[0]:
        return True
    elsewhere = any(installed in frame.path for installed in _INSTALLED) or _LIBRARY.search(frame.path)
    # `<string>`, `<frozen importlib._bootstrap>`: made by a library.
    return not elsewhere and top not in _OURS and not path.startswith("<")


def _find_java_location(lines: Sequence[str]) -> str:
    """Return the location of the deepest cause; its common frames with the outer exception are printed there only."""
    causes: list[list[str]] = [[]]
    for line in lines:
        if line.lstrip().startswith("Caused by: "):
            causes.append([])
        elif found := _java_frame(line):
            causes[-1].append(found)
    frames = [frame for cause in reversed(causes) for frame in cause]
    return next((frame for frame in frames if not frame.startswith(_NOT_THEIRS)), frames[0] if frames else "")


def _java_frame(line: str) -> str:
    """Return `shop.Bank.pay` for `at app//shop.Bank.pay(Bank.java:5)`; "" if the line is no frame."""
    words = line.strip()
    if not words.startswith("at ") or "(" not in words:
        return ""
    # In front of it may stand a class loader and a module: `app//`, `java.base@17.0.1/`.
    name = _MADE_UP.sub("", words[3:].partition("(")[0]).rpartition("/")[2]
    return name if "." in name and " " not in name else ""
