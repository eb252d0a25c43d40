"""The steps of docs/tutorials/quickstart.md, as a reader takes them."""

import re
import time
from collections.abc import Callable
from subprocess import CompletedProcess
from typing import Final

import pytest

from tests.doc_blocks import ROOT, Block, find_block, read_blocks

BLOCKS: Final = read_blocks(ROOT / "docs" / "tutorials" / "quickstart.md")
DEMO: Final = find_block(BLOCKS, "DEMO=")
COMPOSE: Final = find_block(BLOCKS, "docker compose exec -T")
PRODUCE: Final = find_block(BLOCKS, "produce() {")
#: The blocks from the first record on: commands, each with what it prints, if the page shows that.
STEPS: Final = BLOCKS[BLOCKS.index(PRODUCE) + 1 :]
#: What another run has otherwise: places of records, times, the module of the demo.
OTHERWISE: Final = re.compile(
    r"bridge\.demo\.|(?<=orders-)\d+-\d+|(?<=dlq-)\d+-\d+|\d{4}-\d\d-\d\d[T ][\d:.]+\S*|(?<=plan )\d+"
)


Shell = Callable[[str], CompletedProcess[str]]


def take_steps(shell: Shell, setup: Block) -> None:
    """Run each command of the page: it must end with 0 and print what the page shows, within a minute if it only looks.

    Parameters:
        shell: runs a script of Bash.
    """
    known = f"set -e\n{setup.text}{PRODUCE.text}"
    for block, following in zip(STEPS, [*STEPS[1:], None], strict=True):
        if block.language != "sh":
            continue
        shown = following.text if following is not None and following.language == "text" else ""
        looks = block.text.startswith(("bridge find", "bridge deadletters show"))
        printed = run_step(shell, known + block.text, shown, within=60 if looks else 0)
        if variable := re.match(r"(\w+)=\$\(produce", block.text):
            # The record is produced once; what follows knows its coordinates.
            known += f"{variable[1]}={printed}\n"


def run_step(shell: Shell, script: str, shown: str, within: float) -> str:
    """Return what a script prints, once it ends with 0 and prints what is shown; fail when the seconds are over."""
    deadline = time.monotonic() + within
    while True:
        done = shell(script)
        missing = sorted(clean(shown) - clean(done.stdout + done.stderr))
        if not missing and not done.returncode:
            return done.stdout.strip()
        if time.monotonic() > deadline:
            pytest.fail(f"{done} has not: {missing}")
        time.sleep(0.2)


def clean(text: str) -> set[str]:
    """Return the lines of a text without what another run has otherwise."""
    return {OTHERWISE.sub("", line).rstrip() for line in text.splitlines()}
