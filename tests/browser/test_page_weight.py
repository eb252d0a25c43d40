"""What a page costs who opens it: at most 100 KB when they come for the first time, and little after that."""

from typing import Final

import pytest

from bridge.deadletters.accounts.user_account import Role
from tests.browser.pages import ADDRESSES

#: Bytes over the wire, with styles, scripts and the icon.
FIRST: Final = 100_000
#: Of one alone.
PAGE: Final = 25_000


def loaded(page, address):
    """Bytes that came over the wire for a page: headers, compressed bodies, and nothing that the browser had kept."""
    protocol = page.context.new_cdp_session(page)
    protocol.send("Network.enable")
    came = []
    protocol.on("Network.loadingFinished", lambda each: came.append(each["encodedDataLength"]))
    page.goto(address)
    page.wait_for_timeout(100)
    return sum(came)


def test_the_first_load_of_each_page_is_small(window, lies):
    found = {}
    for address in [some[0].format(**vars(lies)) for some in ADDRESSES.values()]:
        opened = window(None if address.startswith("/sign-in") else Role.ADMIN)
        opened.bears("status of 40")
        found[address] = loaded(opened.page(), address)
        opened.context.close()
    print(*(f"\n{size:7,} {address}" for address, size in found.items()))
    assert {address: size for address, size in found.items() if size > FIRST} == {}


@pytest.mark.parametrize("address", ["/", "/groups", "/letters", "/letters/{again}", "/plans/{applying}"])
def test_the_next_page_is_all_that_the_next_page_costs(window, lies, address):
    page = window().page("/account")
    assert 0 < loaded(page, address.format(**vars(lies))) <= PAGE
