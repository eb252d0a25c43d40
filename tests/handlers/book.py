"""The book of the chaos suite's handlers, apart from the ledger: a file to which each run appends a line."""

import os
import time

from tasks import Message


def enter(handler: str, uid: str, message: Message, outcome: str) -> None:
    """Write one line, at once: several processes append to the file that BOOK names, by the machine's own clock."""
    now = time.clock_gettime(time.CLOCK_REALTIME)
    line = f"{handler}\t{uid}\t{message.coordinates}\t{outcome}\t{now:.6f}\t{os.getpid()}\n"
    book = os.open(os.environ["BOOK"], os.O_WRONLY | os.O_APPEND)
    try:
        os.write(book, line.encode())
    finally:
        os.close(book)
