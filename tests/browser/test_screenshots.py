"""The pictures of the documentation, as the console looks (`make screenshots`)."""

import os
from pathlib import Path
from typing import Final

import pytest

from tests.browser.incident import note, now

#: What of the night is shown.
PICTURES: Final = {
    "overview": "/",
    "group": "/groups/{group}",
    "letter": "/letters/{total}",
    "canary": "/plans/{applying}",
}
#: Bytes: the documentation has eight of them.
LARGEST: Final = 180_000


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", PICTURES)
def test_the_console_has_its_picture_taken(window, night, lies, tmp_path, name, scheme):
    folder = Path(os.environ.get("SCREENSHOTS", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    # As if a recorder were at it.
    note(night, lies.applying, leased_by="recorder", leased_until=now() + 25_000)
    opened = window(color_scheme=scheme, viewport={"width": 1180, "height": 780}, reduced_motion="reduce")
    page = opened.page(PICTURES[name].format(**vars(lies)))
    page.wait_for_timeout(500)
    page.screenshot(path=folder / f"console-{name}-{scheme}.png")
    assert (folder / f"console-{name}-{scheme}.png").stat().st_size < LARGEST
