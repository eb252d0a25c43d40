"""What is sent compressed, and what is not."""

import pytest

from bridge.console.console import build_static_address
from bridge.deadletters.accounts.user_account import Role


@pytest.mark.parametrize(
    "address", ["/groups", build_static_address("console.css"), build_static_address("console.js")]
)
def test_pages_styles_and_scripts_are_compressed(site, address):
    answer = site.signed_in(Role.VIEWER).get(address, headers={"accept-encoding": "gzip"})
    assert answer.headers["content-encoding"] == "gzip"


@pytest.mark.parametrize("where", ["cross-site", "same-site", "something new"])
def test_a_page_that_another_site_asks_for_tells_nothing_by_its_length(site, where):
    """BREACH: the other site chooses what the page repeats of its address, and somebody on the wire sees the length."""
    headers = {"accept-encoding": "gzip", "sec-fetch-site": where}
    answer = site.signed_in(Role.VIEWER).get("/groups", headers=headers)
    assert answer.status_code == 200
    assert "content-encoding" not in answer.headers


@pytest.mark.parametrize("where", ["none", "same-origin"])
def test_a_page_that_somebody_asks_for_is_compressed(site, where):
    headers = {"accept-encoding": "gzip", "sec-fetch-site": where}
    assert site.signed_in(Role.VIEWER).get("/groups", headers=headers).headers["content-encoding"] == "gzip"


def test_static_files_are_kept_for_ever_and_pages_not_at_all(site):
    browser = site.signed_in(Role.VIEWER)
    assert "immutable" in browser.get(build_static_address("console.css")).headers["cache-control"]
    assert browser.get("/groups").headers["cache-control"] == "no-store"
