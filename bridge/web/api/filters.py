"""Which letters a request means: the command line's own words, as the API has them."""

from starlette.datastructures import QueryParams

from bridge.deadletters.desk import Desk
from bridge.deadletters.letters.filters import Filter
from bridge.deadletters.masking.masks import Masks
from bridge.errors import FilterFault
from bridge.web import asked as addresses
from bridge.web.api.shapes import letters as shapes


def meant(wanted: shapes.Filter) -> Filter:
    """The letters that a filter means.

    Raises:
        FilterFault: it can mean none.
    """
    fields = wanted.model_dump(include=set(shapes.Filter.model_fields), exclude_defaults=True)
    pairs = [
        # As an address has them.
        (name.replace("_", "-"), addresses.YES if each is True else str(each))
        for name, said in fields.items()
        for each in (said if isinstance(said, list) else [said])
        if each is not None and each is not False
    ]
    return addresses.read(QueryParams(pairs))


def named(desk: Desk, masks: Masks, wanted: shapes.Filter) -> Filter:
    """The letters that somebody would act on: they are said, and what is named of them is there.

    Raises:
        FilterFault: they are not, or they would tell what somebody does not see.
    """
    found = masks.check(meant(wanted))
    if found == Filter():
        raise FilterFault('This means all letters: if that is what you want, say {"status": ["open"]}.')
    if unknown := desk.absent.of(found):
        raise FilterFault(" ".join(unknown))
    return found
