"""Who may sign in, as an admin sees it."""

from bridge.web.roles import Role


def test_an_admin_sees_who_may_sign_in_and_no_hash(site):
    site.user("ann", Role.VIEWER)
    page = site.signed_in(Role.ADMIN).get("/admin/users").text
    assert "2 users may sign in by name" in page
    assert "<bdi>ann</bdi>" in page
    assert "argon2" not in page


def test_without_users_and_behind_a_proxy_it_says_who_gets_in(new_site):
    proxy = {
        "DEADLETTERS_TRUSTED_PROXY": "10.0.0.7",
        "DEADLETTERS_PROXY_USER_HEADER": "X-User",
        "DEADLETTERS_PROXY_ROLE": "admin",
    }
    browser = new_site(**proxy).browser(sent_from="10.0.0.7")
    page = browser.get("/admin/users", headers={"X-User": "ann"}).text
    assert "No users may sign in by name" in page
    assert "names in <bdi>X-User</bdi>, as admin." in page


def test_who_is_no_admin_is_not_offered_the_page(site):
    assert "/admin/users" in site.signed_in(Role.ADMIN).get("/account").text
    assert "/admin/users" not in site.signed_in(Role.OPERATOR).get("/account").text
