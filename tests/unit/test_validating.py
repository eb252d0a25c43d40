"""What a handler says of a value that somebody wrote for it, without running."""

from celery import Celery
from pydantic import BaseModel

from bridge.deadletters.mending.validating import verdict
from tasks.declaring import declare
from tasks.defaults import DEFAULTS


class Order(BaseModel):
    amount: int


def lifted(order: dict[str, object]) -> dict[str, object]:
    return {"amount": order["cents"]}


def app_with(**options: object) -> Celery:
    app = Celery("shop", set_as_current=False)
    app.conf.update(DEFAULTS)

    def charge(order: Order) -> None:
        raise AssertionError("it runs")

    declare(app, ("orders",), {"name": "shop.charge", **options})(charge)
    return app


def test_a_value_is_validated_by_the_handlers_own_model():
    app = app_with()
    assert verdict(app, "shop.charge", b'{"amount": 3}') == (True, "", False)
    refused = verdict(app, "shop.charge", b'{"amount": "much"}')
    assert refused.ok is False
    assert "amount" in refused.why
    assert "much" not in refused.why
    assert verdict(app, "shop.charge", None).ok


def test_a_value_that_validates_after_its_upgrade_is_one_that_the_handler_takes():
    assert verdict(app_with(upgrade=lifted), "shop.charge", b'{"cents": 3}') == (True, "", True)


def test_of_a_handler_that_is_not_known_here_nothing_can_be_told():
    assert verdict(app_with(), "shop.refund", b"{}").ok is None
    assert "no handler of this app" in verdict(app_with(), "shop.refund", b"{}").why
    assert verdict(app_with(), "", b"{}").ok is None
