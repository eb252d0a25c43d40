"""Forms that nobody's page sends: very large, of very many fields; whoever sends them stops nobody else."""

import asyncio
import time
from urllib.parse import parse_qsl

import pytest
from starlette.datastructures import QueryParams

from bridge.console import asgi_app
from bridge.deadletters.model.letter_filter import MOST_IDS


@pytest.mark.parametrize("path", ["/sign-in", "/letters/1/edit"])
def test_a_form_of_very_many_fields_is_refused_before_it_is_read(site, monkeypatch, path):
    monkeypatch.setattr(asgi_app, "QueryParams", lambda body: pytest.fail(f"{len(body)} bytes were taken apart"))
    answer = site.browser().post(path, content=b"&a=" * (asgi_app.MAX_FORM_FIELDS + 1))
    # Whose session has ended is sent to sign in; of their form nothing is kept.
    assert answer.status_code == (413 if path == "/sign-in" else 303)
    assert answer.headers.get("location", "/sign-in?then=%2F") == "/sign-in?then=%2F"
    assert "kept" not in answer.headers.get("location", "")


def test_all_letters_that_may_be_named_one_by_one_are_not_too_many_fields(site):
    ids = "&".join(f"ids={number}" for number in range(1, MOST_IDS + 1))
    answer = site.browser().post("/sign-in", content=ids.encode())
    assert answer.status_code == 403, "they were read, and their password is wrong"


def test_a_form_larger_than_a_value_is_refused(site):
    assert site.browser().post("/sign-in", content=b"a" * (asgi_app.MAX_FORM_BYTES + 1)).status_code == 413


def test_while_a_form_is_taken_apart_others_are_answered(site, monkeypatch):
    in_loop = []

    class Slow(QueryParams):
        def __init__(self, body=""):
            try:
                asyncio.get_running_loop()
                in_loop.append(time.monotonic())
            except RuntimeError:
                pass
            super().__init__(parse_qsl(body))

    monkeypatch.setattr(asgi_app, "QueryParams", Slow)
    assert site.browser().post("/sign-in", data={"name": "ann", "password": "no"}).status_code == 403
    assert in_loop == []
