"""The format of log lines: one line of text, or a JSON object."""

import copy
import logging
from typing import Any, Final, Literal

from bridge.formats.text_forms import make_printable

LogFormat = Literal["text", "json"]

#: The fields of every line, with their names in JSON.
_FIELDS: Final = {"asctime": "time", "levelname": "level", "name": "logger", "message": "message", "process": "pid"}


def json_formatter() -> logging.Formatter:
    """Return a formatter that writes one JSON object a line, with the fields that `extra` and filters add."""
    # Imported here: the text format does not need the package.
    from pythonjsonlogger.json import JsonFormatter

    made: logging.Formatter = JsonFormatter(
        " ".join(f"%({name})s" for name in _FIELDS),
        rename_fields={name: field for name, field in _FIELDS.items() if name != field},
        datefmt="%Y-%m-%dT%H:%M:%S%z",
        json_default=_text,
    )
    return made


def begin_log(level: str, form: LogFormat) -> None:
    """Start logging to standard error from this level on, in this format."""
    logging.basicConfig(level=level.upper(), format="[%(asctime)s: %(levelname)s/bridge] %(message)s")
    for each in logging.getLogger().handlers:
        each.setFormatter(json_formatter() if form == "json" else OneLine(each.formatter))


class OneLine(logging.Formatter):
    """A formatter of text, one line for each record, with line breaks and escapes of a message made harmless.

    A traceback follows below the line, with line breaks and without escapes.
    """

    def __init__(self, form: logging.Formatter | None) -> None:
        super().__init__()
        self._form = form or logging.Formatter()

    def format(self, record: logging.LogRecord) -> str:
        """Return the line and its traceback; the record itself stays unchanged for other handlers."""
        shown = copy.copy(record)
        shown.msg, shown.args = make_printable(record.getMessage(), keep="\t"), None
        if record.exc_info:
            shown.exc_text = make_printable(self._form.formatException(record.exc_info), keep="\n\t")
        return self._form.format(shown)


def _text(value: Any) -> str:
    """Return the type's name for a value that JSON cannot hold: the value itself may be a record's."""
    return f"<{type(value).__name__}>"
