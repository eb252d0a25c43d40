"""The screen of the demo: live in a terminal, a line a second elsewhere, and the table at the end."""

import time
from collections import Counter
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from bridge.demo.delivery_watch import (
    DEAD,
    DONE,
    PARKED,
    RETRYING,
    STATES,
    WAITING,
    BoardRow,
    DeliveryBoard,
    DeliveryFailure,
)
from bridge.formats.text_forms import format_count

COLOURS: Final = {DONE: "green", RETRYING: "yellow", PARKED: "cyan", DEAD: "red", WAITING: "bright_black"}
#: The titles in the live picture: "done" is called "handled" there.
TITLES: Final = {DONE: "handled", RETRYING: "retrying", PARKED: "parked", DEAD: "dead", WAITING: "waiting"}
#: The number of failures shown.
MISHAPS: Final = 8
BAR: Final = 74
#: Seconds between two pictures, and between two lines without a terminal.
REDRAW_EVERY: Final = 0.25
LINE_EVERY: Final = 1.0


class DemoScreen:
    """The progress of a demo, shown while it is entered.

    Parameters:
        title: of the demo.
        hint: what the user can do.
    """

    def __init__(self, board: DeliveryBoard, console: Console, title: str, hint: str) -> None:
        self._board, self._console, self._title, self._hint = board, console, title, hint
        self._started = time.monotonic()
        self._next = 0.0
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.__enter__()
        else:
            self._console.print(Text(f"{self._title}. {self._hint}"))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.__exit__(kind, error, traceback)

    def show(self) -> None:
        """Show the current picture, if it is due."""
        now = time.monotonic()
        if now < self._next:
            return
        counts = self._board.counts()
        if self._live is not None:
            self._next = now + REDRAW_EVERY
            self._live.update(self._picture(counts), refresh=True)
        else:
            self._next = now + LINE_EVERY
            halted = f"; halted {self._board.halted}" if self._board.halted else ""
            self._console.print(Text(f"{now - self._started:4.0f} s  {_format_counts(counts)}{halted}"))

    def _picture(self, counts: Counter[str]) -> Panel:
        seconds = int(time.monotonic() - self._started)
        head = Text(f"{self._title}  {seconds // 60:02d}:{seconds % 60:02d}", style="bold")
        if self._board.halted:
            head.append(f"\nhalted {self._board.halted}", style="bold red")
        numbers = Text("   ").join(
            Text.assemble((f"{counts[state]}", f"bold {COLOURS[state]}"), f" {TITLES[state]}") for state in STATES
        )
        latest = [_format_failure(mishap) for mishap in list(self._board.mishaps)[-MISHAPS:]]
        latest += [Text()] * (MISHAPS - len(latest))
        foot = Text(self._hint, style="bright_black", no_wrap=True, overflow="ellipsis")
        body = Group(head, Text(), _bar(counts), numbers, Text(), Text("Last failures", style="bold"), *latest)
        return Panel(Group(body, Text(), foot), box=box.ROUNDED, width=min(self._console.width, BAR + 4))


def make_outcome_table(rows: dict[str, BoardRow], handlers: Sequence[str]) -> Table:
    """Return the table of outcomes by kind of order, with a column for each handler."""
    shown = Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        padding=(0, 1, 0, 0),
        title="\nWhat became of every record",
        title_style="bold",
        title_justify="left",
    )
    shown.add_column("order", no_wrap=True)
    shown.add_column("sent", justify="right")
    for handler in handlers:
        shown.add_column(_short(handler))
    shown.add_column("retries", justify="right")
    total = BoardRow(outcomes={handler: Counter() for handler in handlers})
    for kind, row in rows.items():
        shown.add_row(*_cells(kind, row, handlers))
        total.records += row.records
        total.retries += row.retries
        for handler in handlers:
            total.outcomes[handler].update(_summed(row.outcomes[handler]))
    shown.add_section()
    shown.add_row(*_cells("all", total, handlers), style="bold")
    return shown


def _cells(kind: str, row: BoardRow, handlers: Sequence[str]) -> list[str | Text]:
    outcomes = (_format_outcomes(row.outcomes[handler]) for handler in handlers)
    return [kind, str(row.records), *outcomes, str(row.retries or "")]


def _format_outcomes(counts: Counter[str]) -> Text:
    """Return the outcomes as text, `12 done, 3 dead: exhausted`."""
    parts = [Text(f"{counts[state]} {state}", style=COLOURS[state]) for state in STATES if counts[state]]
    for reason in sorted(counts.keys() - set(STATES)):
        parts.append(Text(f"{counts[reason]} dead: {reason}", style=COLOURS[DEAD]))
    return Text(", ").join(parts)


def _summed(counts: Counter[str]) -> Counter[str]:
    summed: Counter[str] = Counter()
    for outcome, count in counts.items():
        summed[outcome if outcome in STATES else DEAD] += count
    return summed


def _bar(counts: Counter[str]) -> Text:
    total = counts.total()
    bar = Text()
    edge = 0
    so_far = 0
    for state in STATES:
        so_far += counts[state]
        end = round(BAR * so_far / total) if total else 0
        bar.append("━" * (end - edge), style=COLOURS[state])
        edge = end
    return bar.append("━" * (BAR - edge), style=COLOURS[WAITING])


def _format_failure(mishap: DeliveryFailure) -> Text:
    coordinates, _, handler = mishap.identity.partition(":")
    colour = COLOURS.get(mishap.outcome, COLOURS[DEAD])
    start = f"{_short(handler):<6} {coordinates:<11} "
    outcome = {RETRYING: "again", PARKED: "parked"}.get(mishap.outcome, f"dead: {mishap.outcome}")
    kind, colon, text = mishap.error.partition(":")
    words = Text(" ".join(f"{_short(kind)}{colon}{text}".split()))
    words.truncate(max(10, BAR - len(start) - len(outcome) - 1), overflow="ellipsis", pad=True)
    return Text.assemble(start, words, " ", (outcome, colour))


def _short(name: str) -> str:
    """Return the name of a handler or an exception without its module."""
    return name.rpartition(".")[2]


def _format_counts(counts: Counter[str]) -> str:
    return f"{format_count(counts.total(), 'delivery')}: " + ", ".join(
        f"{counts[state]} {TITLES[state]}" for state in STATES
    )
