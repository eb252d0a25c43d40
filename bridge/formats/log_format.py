"""The format of log lines: one line of text, or JSON with a field for each thing that is known."""

import copy
import logging
from typing import Any, Final, Literal

from bridge.formats.text_forms import make_printable

LogFormat = Literal["text", "json"]

#: What each line has, under the name that it has in JSON.
_FIELDS: Final = {"asctime": "time", "levelname": "level", "name": "logger", "message": "message", "process": "pid"}


def json_formatter() -> logging.Formatter:
    """A formatter that writes a JSON object a line: what it always has, and what `extra` and filters have added."""
    # Here, so that who logs text need not have it.
    from pythonjsonlogger.json import JsonFormatter

    made: logging.Formatter = JsonFormatter(
        " ".join(f"%({name})s" for name in _FIELDS),
        rename_fields={name: field for name, field in _FIELDS.items() if name != field},
        datefmt="%Y-%m-%dT%H:%M:%S%z",
        json_default=_text,
    )
    return made


def begin_log(level: str, form: LogFormat) -> None:
    """Log to standard error from this level on, in this form."""
    logging.basicConfig(level=level.upper(), format="[%(asctime)s: %(levelname)s/bridge] %(message)s")
    for each in logging.getLogger().handlers:
        each.setFormatter(json_formatter() if form == "json" else OneLine(each.formatter))


class OneLine(logging.Formatter):
    """Text in another formatter's form, a line a record: what errors say begins no line of its own, and colours none.

    A traceback comes below it, with line breaks and without escapes.
    """

    def __init__(self, form: logging.Formatter | None) -> None:
        super().__init__()
        self._form = form or logging.Formatter()

    def format(self, record: logging.LogRecord) -> str:
        """The line, and its traceback; the record stays as it is, for others that write it too."""
        shown = copy.copy(record)
        shown.msg, shown.args = make_printable(record.getMessage(), keep="\t"), None
        if record.exc_info:
            shown.exc_text = make_printable(self._form.formatException(record.exc_info), keep="\n\t")
        return self._form.format(shown)


def _text(value: Any) -> str:
    """What is no JSON is named and not shown: a record's value may be in it."""
    return f"<{type(value).__name__}>"
