"""Says which tests failed at the first run of a phase; exits 0 if each of them may run once more.

Not if the list of tests that needed a second run before has one of them, nor if nothing says which tests failed: then
the run itself broke.

Parameters: the list, one id a line; the file to which the ids are added, for the summary.
"""

import json
import sys
from pathlib import Path


def main(known: Path, named: Path) -> int:
    """Print them: a test that fails now and then is a defect that is known, not one that is forgiven."""
    cache = Path(".pytest_cache/v/cache/lastfailed")
    failed = sorted(json.loads(cache.read_text())) if cache.exists() else []
    if not failed:
        print("=== no test is named as failed: the run itself broke, and is not repeated")
        return 1
    before = set(known.read_text().splitlines())
    for test in failed:
        print(f"=== FAILED AT THE FIRST RUN: {test}{', AND IN AN EARLIER RUN: mend it' if test in before else ''}")
    with named.open("a") as file:
        file.writelines(f"{test}\n" for test in failed)
    return int(not before.isdisjoint(failed))


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])))
