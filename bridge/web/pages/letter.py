"""One letter, with all that is known of it."""

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from bridge.deadletters.letters.place import is_users
from bridge.web import console


def one(request: Request) -> Response:
    """The letter's page."""
    asked = console.of(request)
    letter = asked.desk.letters.one(request.path_params["id"])
    frames = [(line, is_users(line, letter.listed.handler)) for line in letter.traceback.splitlines()]
    return asked.page(request, "letter.html", letter=letter, it=letter.listed, frames=frames)


def value(request: Request) -> Response:
    """Its value, byte for byte, as a file: never as something that a browser would show."""
    letter = console.of(request).desk.letters.one(request.path_params["id"])
    if letter.value is None:
        raise HTTPException(404, "This letter has no value here: it is a tombstone, or too large for the database.")
    name = f'attachment; filename="letter-{letter.listed.id}.bin"'
    return Response(letter.value, media_type="application/octet-stream", headers={"content-disposition": name})
