"""What the console's pages have in common: the desk that they ask, who asks, and how a page is made."""

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse

from bridge.deadletters.desk import Desk
from bridge.settings.addresses import listed
from bridge.web import showing
from bridge.web.guesses import Guesses
from bridge.web.lasting import lasting
from bridge.web.live import Live
from bridge.web.looking import Looking
from bridge.web.looking import asked as asked_status
from bridge.web.proofs import Proofs
from bridge.web.proxies import Proxy
from bridge.web.roles import NOBODY, Role, Who
from bridge.web.sessions import Sessions

HERE: Final = Path(__file__).parent
STATIC: Final = HERE / "static"


def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        # Whatever its name ends in: all that pages show is from outside.
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters = (showing.number, showing.foreign, showing.attribute, showing.octets, showing.commands)
    made.filters |= {each.__name__: each for each in filters}
    made.globals |= {"clock": showing.clock, "ago": showing.ago, "error": showing.error, "static": static}
    made.globals |= {"lasting": lasting, "release": release, "OPERATOR": Role.OPERATOR}
    return made


@cache
def static(name: str) -> str:
    """The address of a file, which changes with what is in it: it may be kept for ever."""
    digest = hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:12]
    return f"/static/{digest}/{name}"


@cache
def release() -> str:
    """What is sent to browsers, in a word: parts of another release do not fit a page."""
    files = sorted((*STATIC.iterdir(), *(HERE / "templates").iterdir()))
    return hashlib.sha256(b"".join(each.read_bytes() for each in files)).hexdigest()[:12]


@dataclass
class Console:
    """One console.

    Attributes:
        name: what it is of, for the bar on top: `payments @ kafka-eu-1:9092`.
        clock: ms since the epoch.
        hosts: names by which it is called, besides `localhost` and addresses.
    """

    desk: Desk
    name: str
    clock: Callable[[], int] = lambda: int(time.time() * 1000)
    templates: Environment = field(default_factory=_environment, repr=False)
    live: Live = field(default_factory=Live, repr=False)
    sessions: Sessions = field(init=False, repr=False)
    guesses: Guesses = field(init=False, repr=False)
    proxy: Proxy = field(init=False)
    hosts: tuple[str, ...] = field(init=False)
    looking: Looking = field(init=False, repr=False)
    proofs: Proofs = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Take from the settings who may sign in how."""
        said = self.desk.settings.environment
        self.sessions = Sessions(self.desk, lambda: self.clock())
        self.guesses = Guesses(lambda: self.clock())
        self.proxy = Proxy.of(said)
        self.hosts = listed(said.DEADLETTERS_CONSOLE_HOSTS)
        self.looking = Looking(lambda: asked_status(self.desk))
        self.proofs = Proofs(self.desk)

    def macros(self, template: str) -> Any:
        """The macros of a template, for parts of a page by themselves."""
        return self.templates.get_template(template).module

    def page(self, request: Request, template: str, status: int = 200, **values: Any) -> HTMLResponse:
        """A page of a template, which has `now`, `who` and `console` besides."""
        made = self.templates.get_template(template)
        body = made.render(console=self, who=asking(request), now=self.clock(), path=request.url.path, **values)
        return HTMLResponse(body, status)


def of(request: Request) -> Console:
    """The console that was asked."""
    found: Console = request.app.state.console
    return found


def asking(request: Request) -> Who:
    """Who asks."""
    return getattr(request.state, "who", NOBODY)
