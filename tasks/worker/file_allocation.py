"""Mapped files whose disk space is allocated first: a full disk is an OSError then, and not the SIGBUS that no
`except` catches.
"""

import os
from contextlib import suppress
from mmap import mmap
from pathlib import Path
from typing import Final

_ZEROS: Final = bytes(65_536)


def allocate_file(descriptor: int, size: int) -> None:
    """Make a file at least `size` bytes long, all of which the disk has.

    Raises:
        OSError: the disk is full, or its quota is reached.
    """
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
        return
    while (length := os.fstat(descriptor).st_size) < size:
        os.pwrite(descriptor, _ZEROS[: size - length], length)


def map_new_file(path: Path, size: int) -> mmap:
    """Return a file of zeros in memory, in the place of what was at `path`; no reader sees it half made.

    Raises:
        OSError: the disk is full, or the folder is gone; nothing is left of the file.
    """
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        with unfinished.open("w+b") as file:
            allocate_file(file.fileno(), size)
            made = mmap(file.fileno(), size)
        unfinished.replace(path)
    except OSError:
        with suppress(OSError):
            unfinished.unlink()
        raise
    return made
