"""What leaves as lines of JSON: letters with all that the database has of them, and the trail."""

from bridge.web import exporting
from bridge.web.api import filters
from bridge.web.api.asked import Answer, Asked


def letters(asked: Asked) -> Answer:
    """The letters of a filter, as `bridge deadletters export` writes them; masked for who does not see all of them."""
    wanted = asked.masks.check(filters.meant(asked.query))
    lines = exporting.letters(asked.desk, asked.masks, asked.who.name, wanted)
    return Answer(lines, headers=exporting.headers("letters.jsonl"))


def trail(asked: Asked) -> Answer:
    """Who did what, newest first."""
    query = asked.query
    lines = exporting.begun(asked.desk.trail.lines(asked.who.name, query.by.strip(), query.what))
    return Answer(lines, headers=exporting.headers("trail.jsonl"))
