"""The syntax tree of a source file, for tests of the rules that a machine can see."""

import ast
import gc
from pathlib import Path


def parse_source(file: Path) -> ast.Module:
    """Return the syntax tree of a file.

    Python before 3.11.8 and 3.12.2 counts the depth of all parsing in one place: if the collector runs a finalizer
    meanwhile, and that formats a traceback, which parses too, then `ast.parse` raises SystemError. So it waits.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(file.read_text())
    finally:
        if collects:
            gc.enable()
