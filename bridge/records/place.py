"""Where a record lies."""

from typing import TypeAlias

#: A partition: its topic and its number.
Place: TypeAlias = tuple[str, int]
