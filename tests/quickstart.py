"""The steps of docs/tutorials/quickstart.md, as a reader takes them."""

import re
from collections.abc import Callable
from typing import Final

from tests.doc_blocks import ROOT, Block, find_block, read_blocks
from tests.processes import eventually

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


def take_steps(shell: Callable[[str], str], setup: Block) -> None:
    """Run each command of the page, and wait until it has printed what the page shows.

    Parameters:
        shell: runs a script, which must end with 0, and returns what it prints.
    """
    known = f"set -e\n{setup.text}{PRODUCE.text}"
    for block, following in zip(STEPS, [*STEPS[1:], None], strict=True):
        if block.language != "sh":
            continue
        shown = following.text if following is not None and following.language == "text" else ""
        script = known + block.text

        def run(script: str = script, shown: str = shown) -> str | None:
            printed = shell(script)
            lines = {OTHERWISE.sub("", line).rstrip() for line in printed.splitlines()}
            wanted = {OTHERWISE.sub("", line).rstrip() for line in shown.splitlines()}
            return printed if wanted <= lines else None

        if variable := re.match(r"(\w+)=\$\(produce", block.text):
            # The record is produced once; what follows knows its coordinates.
            known += f"{variable[1]}={shell(script).strip()}\n"
        elif block.text.startswith(("bridge find", "bridge deadletters show")):
            eventually(run, 60, block.text)
        else:
            assert run() is not None, block.text
