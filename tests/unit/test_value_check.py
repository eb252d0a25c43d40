"""What a handler says of a value that somebody wrote for it, without running."""

from celery import Celery
from pydantic import BaseModel

from bridge.deadletters.editing.handler_check import ask_handler
from tasks.declaration.celery_defaults import DEFAULTS
from tasks.declaration.handler_declaration import declare_handler


class Order(BaseModel):
    amount: int


def lifted(order: dict[str, object]) -> dict[str, object]:
    return {"amount": order["cents"]}


def app_with(**options: object) -> Celery:
    app = Celery("shop", set_as_current=False)
    app.conf.update(DEFAULTS)

    def charge(order: Order) -> None:
        raise AssertionError("it runs")

    declare_handler(app, ("orders",), {"name": "shop.charge", **options})(charge)
    return app


def test_a_value_is_validated_by_the_handlers_own_model():
    app = app_with()
    assert ask_handler(app, "shop.charge", b'{"amount": 3}') == (True, "", False)
    refused = ask_handler(app, "shop.charge", b'{"amount": "much"}')
    assert refused.ok is False
    assert "amount" in refused.why
    assert "much" not in refused.why
    assert ask_handler(app, "shop.charge", None).ok


def test_a_value_that_validates_after_its_upgrade_is_one_that_the_handler_takes():
    assert ask_handler(app_with(upgrade=lifted), "shop.charge", b'{"cents": 3}') == (True, "", True)


def test_of_a_handler_that_is_not_known_here_nothing_can_be_told():
    assert ask_handler(app_with(), "shop.refund", b"{}").ok is None
    assert "no handler of this app" in ask_handler(app_with(), "shop.refund", b"{}").why
    assert ask_handler(app_with(), "", b"{}").ok is None
