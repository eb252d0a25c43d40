"""What hostile producers write, and what of it must never reach a page."""

import re
from html.parser import HTMLParser

#: Markup, templates, a terminal's escapes, marks that turn text round, a null, what cannot be seen.
TEXT = (
    "<script>alert(1)</script>\"'><img src=x onerror=alert(2)></pre></textarea></title>{{ 7*7 }}{% x %}${7*7}"
    "\u202exod.ecnavda\u202c\u2066\x1b[31m\x07\x08\u200b\ufeff\u00ad\x85\u2028"
)
#: As bytes, with some that are no UTF-8.
BYTES = TEXT.encode() + b"\x00\xff\xfe"

#: Controls but tab and line break, marks that turn text round, and what is not seen (joiners aside).
UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
#: What pages are made of; all else in angle brackets was written by others.
ELEMENTS = frozenset(
    re.findall(
        r"\w+",
        "a aside b bdi body button br circle code datalist dd del details div dl dt fieldset footer form h1 h2 h3 head "
        "header html i input ins kbd label legend li link main mark meta nav noscript ol option p path pre script "
        "section select small span summary svg symbol table tbody td textarea th thead time title tr ul use",
    )
)


class Elements(HTMLParser):
    """What a browser makes of a page: its elements, and their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note one."""
        self.found.append((tag, dict(attrs)))


def check(page: str) -> None:
    """Nothing of what others wrote is markup, acts, or is there without being seen."""
    assert not UNSEEN.search(page), f"{UNSEEN.search(page)!r} reaches the page"
    elements = Elements(page).found
    assert {tag for tag, _ in elements} <= ELEMENTS, {tag for tag, _ in elements} - ELEMENTS
    for tag, attributes in elements:
        assert not [name for name in attributes if name.startswith("on") or name == "style"], (tag, attributes)
        assert tag != "script" or (attributes.get("src") or "").startswith("/static/")
        for name in ("href", "src", "action"):
            assert re.match(r"/|#|$", attributes.get(name) or ""), (tag, attributes)
    assert "alert(1)</script>" not in page
    assert "{{ 7*7 }}" in page or "7*7" not in page
