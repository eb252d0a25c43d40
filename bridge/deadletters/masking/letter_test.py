"""A dead letter as a pytest file: its value, masked and reduced to what fails in the same way, and a test that fails as
long as the handler does.

Its handler runs in a sandbox (bridge/deadletters/editing/handler_sandbox.py). A failure is the same if its failure
group is (bridge/deadletters/model/failure_group.py), and of a smaller value also its line and its message: a value that
fails with another key or number says nothing of this letter's cause.
"""

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from celery import Celery

from bridge.deadletters.editing.handler_sandbox import HandlerSandbox, SandboxRun
from bridge.deadletters.editing.value_minimizer import ValueMinimizer
from bridge.deadletters.masking.letter_mask import LetterMasks
from bridge.deadletters.masking.value_mask import MASK, HiddenParts, list_path_names, replace_parts
from bridge.deadletters.model import exact_json
from bridge.deadletters.model.failure_group import FailureGroup, compute_cause_fingerprint, find_failure_group
from bridge.deadletters.model.letter_view import LetterView
from bridge.formats.delivery import Message
from bridge.formats.failure import Failure
from bridge.formats.text_forms import format_count, make_printable

#: The longest message that a test compares; a longer one, or one that changes, is not compared.
LONGEST_MESSAGE: Final = 300
#: Characters of a bytes literal in a line.
_LINE: Final = 80
#: What takes the place of masked parts, in turn, until the value fails as before.
_TEXTS: Final = (MASK, "x", "", "0", "1")
_NUMBERS: Final = ("0", "1", "0", "0", "1")


@dataclass(frozen=True, slots=True)
class LetterTest:
    """A pytest file of a letter.

    Attributes:
        text: the file.
        why_not: why the failure is not reproduced, so that the test is skipped; empty: it is.
        before, after: bytes of the value.
        masked: the paths of the masked fields.
        runs: of the handler.
        seconds: for all of it.
    """

    text: str
    why_not: str
    before: int
    after: int
    masked: tuple[str, ...]
    runs: int
    seconds: float

    @property
    def summary(self) -> str:
        """Return what was done, in a line."""
        if self.why_not:
            return f"not reproduced, so the test is skipped: {self.why_not}"
        runs = format_count(self.runs, "run")
        return (
            f"reproduced; the value is cut from {self.before:,} to {self.after:,} bytes ({runs}, {self.seconds:.1f} s)"
        )


def make_letter_test(app: Celery, letter: LetterView, masks: LetterMasks) -> LetterTest:
    """Return a letter as a pytest file. Its handler runs, in a sandbox.

    Parameters:
        letter: with its value.
        masks: of whoever gets the file.
    """
    return _LetterTestMaker(app, letter, masks).make()


class _LetterTestMaker:
    """The work on one letter."""

    def __init__(self, app: Celery, letter: LetterView, masks: LetterMasks) -> None:
        self._letter, self._fields = letter, masks.find_fields(letter.listed.topic)
        self._task: Any = app.tasks.get(letter.listed.handler)
        shown = masks.letter(letter)
        self._shown, self._hidden = shown.letter, shown.value
        self._sandbox = HandlerSandbox(lambda message: self._task.call_alone(message))
        self._cause = ""
        #: The message that each smaller value must give; `None`: it changes from run to run.
        self._said: str | None = None
        self._begun = time.monotonic()

    def make(self) -> LetterTest:
        it, original = self._letter.listed, self._letter.to_message()
        why_not = make_printable(self._why_not_run() or self._why_not_reproduced(original))
        message: Message | None = self._mask_plainly(original)
        if not why_not:
            message = self._mask(original)
            if message is None:
                why_not = make_printable(f"it fails only with what is masked here ({', '.join(self._masked())})")
            else:
                self._said = self._find_message(message)
                message = self._reduce(message)
        return LetterTest(
            "\n".join(self._write(message, why_not)) + "\n",
            why_not,
            max(0, it.value_size),
            len(message.value or b"") if message is not None else 0,
            self._masked(),
            self._sandbox.runs,
            time.monotonic() - self._begun,
        )

    def _masked(self) -> tuple[str, ...]:
        paths = [".".join(list_path_names(path)) or "the value" for path, _ in self._hidden.found]
        parts = [*dict.fromkeys(paths)] or (["the value"] if self._hidden.is_any else [])
        if self._fields.key and self._letter.listed.key is not None:
            parts.append("the key")
        parts += [f"header {name}" for name, _ in self._letter.headers if self._fields.has_header(name)]
        return tuple(parts)

    def _why_not_run(self) -> str:
        it = self._letter.listed
        if not hasattr(self._task, "call_alone"):
            return f"{it.handler or 'it'} is no handler of this app: see -A, HANDLERS and `imports`"
        if not self._letter.kept:
            return "its value is too large for the database, and Kafka does not have it any more"
        if it.reason in ("poison", "unknown_handler"):
            return f"it died of {it.reason!r}: no exception says how"
        return ""

    def _why_not_reproduced(self, original: Message) -> str:
        run = self._sandbox.run(original)
        if run.refused:
            return (
                f"before it fails it reaches outside ({run.refused}), which a trial may not: the failure may come from "
                "an outside service, a file or a database"
            )
        if run.ended_by:
            return f"the trial did not end by itself: {run.ended_by}"
        if run.failure is None:
            return (
                "the handler takes this value here: the failure came from elsewhere (an outside service, another "
                "state), or this code has the fix"
            )
        it = self._letter.listed
        if (found := self._find_group(run.failure)) != (it.handler, it.error_class, it.place):
            return f"here it fails in another way: {found[1]} at {found[2]}, and not {it.error_class} at {it.place}"
        self._cause = self._find_cause(run)
        return ""

    def _find_group(self, failure: Failure) -> tuple[str, str, str]:
        handler = self._letter.listed.handler
        return find_failure_group(handler, failure.error_class, failure.error_traceback, failure.error_message)

    def _find_cause(self, run: SandboxRun) -> str:
        """Return the fingerprint of a run's failure; empty if it has none, or reached outside."""
        failure = run.failure
        if failure is None or run.refused:
            return ""
        group = FailureGroup(*self._find_group(failure))
        return compute_cause_fingerprint(group, failure.error_traceback, failure.error_message)

    def _fails(self, message: Message) -> bool:
        run = self._sandbox.run(message)
        if self._find_cause(run) != self._cause:
            return False
        return self._said is None or (run.failure is not None and run.failure.error_message == self._said)

    def _find_message(self, message: Message) -> str | None:
        """Return the message of a failure if it is the same in each run."""
        failures = [self._sandbox.run(message).failure for _ in range(2)]
        first, second = (None if failure is None else failure.error_message for failure in failures)
        return first if first == second and len(first or "") <= LONGEST_MESSAGE else None

    def _mask_plainly(self, message: Message) -> Message | None:
        """Return a message whose masked parts are `[masked]`, for a test that is skipped; `None`: all of it is."""
        return next(self._list_masked(message), None) if self._letter.kept else None

    def _mask(self, message: Message) -> Message | None:
        """Return a message without masked parts that fails as before; `None`: it needs them."""
        if not self._masked():
            return message
        return next((masked for masked in self._list_masked(message) if self._fails(masked)), None)

    def _list_masked(self, message: Message) -> Iterator[Message]:
        plain = replace(message, key=self._shown.listed.key, headers=self._shown.headers)
        if not self._hidden.is_any:
            yield plain
        elif not self._hidden.whole and self._hidden.readable and self._letter.encoded is None:
            for turn in range(len(_TEXTS)):
                yield replace(plain, value=_replace_hidden(self._hidden, turn, message.value or b""))

    def _reduce(self, message: Message) -> Message:
        steps: list[Callable[[Message], Message]] = [
            lambda message: replace(message, headers=()),
            lambda message: replace(message, key=None),
            lambda message: replace(message, timestamp=None),
        ]
        for step in steps:
            if (smaller := step(message)) != message and self._fails(smaller):
                message = smaller
        if not message.value or self._letter.encoded is not None:
            return message
        minimizer = ValueMinimizer(lambda value: self._fails(replace(message, value=value)))
        return replace(message, value=minimizer.reduce(message.value).value)

    def _write(self, message: Message | None, why_not: str) -> Iterator[str]:
        it = self._letter.listed
        place = f" at {it.place}" if it.place else ""
        yield f'"""Dead letter {it.id}, {_quote(f"{it.name}: {it.error_class}{place}")}.'
        yield ""
        yield f"Written by `bridge deadletters show {it.id} --pytest`."
        if masked := self._masked():
            yield f"Masked: {_quote(', '.join(masked))}."
        if not why_not:
            yield "The value is cut to what fails in the same way: add what a fixed handler needs besides."
        yield '"""'
        yield ""
        if why_not:
            yield "import pytest"
            yield ""
        yield from self._write_imports()
        yield ""
        if message is None:
            yield "# The value is not here: see the reason of the skip."
        yield from _write_value(message.value if message is not None else None)
        bare = replace(self._letter.to_message(), key=None, headers=())
        yield f"RECORD = Message({', '.join(_list_arguments(message or bare))})"
        yield ""
        yield ""
        if why_not:
            yield f"@pytest.mark.skip(reason={f'not reproduced: {why_not}'!r})"
        yield f"def test_the_failure_of_dead_letter_{it.id}_is_fixed():"
        yield "    # A fixed handler goes on: replace the services that it calls, as your other tests do."
        yield "    error = outcome(handler, RECORD).error"
        yield _write_assertion(it.error_class, self._said)

    def _write_imports(self) -> Iterator[str]:
        found = _find_import(self._task)
        if found is None:
            yield "from tasks import Message, app"
            yield "from tasks.testing import outcome"
            yield ""
            yield f"handler = app.tasks.get({self._letter.listed.handler!r})"
            return
        module, name = found
        yield f"from {module} import {name}" + ("" if name == "handler" else " as handler")
        yield "from tasks import Message"
        yield "from tasks.testing import outcome"


def _quote(text: str) -> str:
    """Return a text of a record as a part of a docstring, which it cannot end: any program may have written it."""
    return make_printable(text).replace("\\", "\\\\").replace('"', '\\"')


def _replace_hidden(hidden: HiddenParts, turn: int, like: bytes) -> bytes:
    parts = {path: _find_replacement(part, turn) for path, part in hidden.found}
    return exact_json.write_json(replace_parts(hidden.tree, parts), like)


def _find_replacement(part: Any, turn: int) -> Any:
    match part:
        case None:
            return None
        case bool():
            return bool(turn % 2)
        case exact_json.ExactNumber():
            return exact_json.ExactNumber(_NUMBERS[turn])
        case list():
            return []
        case dict():
            return {}
    return _TEXTS[turn]


def _find_import(task: Any) -> tuple[str, str] | None:
    """Return the module that has a handler, and its name there."""
    module = getattr(getattr(task, "run", None), "__module__", None)
    if module not in sys.modules:
        return None
    found = vars(sys.modules[module])
    # Celery makes a task when it is needed: what a module has may be a proxy of it.
    return next(((module, name) for name, each in found.items() if _is_task(each, task)), None)


def _is_task(given: Any, task: Any) -> bool:
    return getattr(given, "name", None) == task.name and getattr(given, "run", None) is not None


def _write_value(value: bytes | None) -> Iterator[str]:
    if value is None or len(repr(value)) <= _LINE:
        yield f"VALUE = {value!r}"
        return
    yield "VALUE = ("
    yield from (f"    {value[at : at + _LINE]!r}" for at in range(0, len(value), _LINE))
    yield ")"


def _list_arguments(message: Message) -> Iterator[str]:
    yield from (repr(message.topic), str(message.partition), str(message.offset), "value=VALUE")
    if message.key is not None:
        yield f"key={message.key!r}"
    if message.headers:
        yield f"headers={message.headers!r}"
    if message.timestamp is not None:
        yield f"timestamp={message.timestamp}"


def _write_assertion(error_class: str, said: str | None) -> str:
    name = error_class.rpartition(".")[2]
    if said is None:
        return f"    assert type(error).__name__ != {name!r}"
    return f"    assert (type(error).__name__, str(error)) != ({name!r}, {said!r})"
