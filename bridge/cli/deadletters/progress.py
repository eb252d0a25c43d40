"""What is said beside the answer, on stderr: questions, and how far long work is, where that is a terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.progress import Progress, TextColumn

errors: Final = Console(stderr=True, highlight=False)


@contextmanager
def progress(doing: str) -> Iterator[Callable[[str], None]]:
    """How far it is, on a terminal."""
    columns = (TextColumn("{task.description}"),)
    with Progress(*columns, console=errors, disable=not errors.is_terminal, transient=True) as progress:
        task = progress.add_task("")
        yield lambda said: progress.update(task, description=f"{doing}: {said}")
