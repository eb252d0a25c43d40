"""What the console's pages have in common: the desk that they ask, who asks, and how a page is made."""

import hashlib
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

from jinja2 import BytecodeCache, Environment, FileSystemLoader, StrictUndefined
from jinja2.bccache import Bucket
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import HTMLResponse

from bridge.deadletters.desk import Desk
from bridge.deadletters.masking.masks import Masks
from bridge.deadletters.questions.recorders import Recorders, recorders
from bridge.errors import ConsoleRefused, how_to_install
from bridge.settings.values import EnvironmentSettings
from bridge.topics.recent import Recent
from bridge.web import showing
from bridge.web.api.bearers import Bearers
from bridge.web.guesses import Guesses
from bridge.web.hearing import Hearing
from bridge.web.keeping import Keeping
from bridge.web.lasting import lasting
from bridge.web.live import Live
from bridge.web.looking import Looking
from bridge.web.looking import asked as asked_status
from bridge.web.masking import Masking
from bridge.web.origins import names
from bridge.web.proofs import Proofs
from bridge.web.proxies import Proxy
from bridge.web.roles import NOBODY, Role, Who
from bridge.web.sessions import Sessions
from bridge.web.shared import Shared

if TYPE_CHECKING:
    # An extra of its own: imported where an issuer is set.
    from bridge.web.oidc.signing import SigningIn

HERE: Final = Path(__file__).parent
STATIC: Final = HERE / "static"


class CompiledTemplates(BytecodeCache):
    """The compiled templates of this process: each console has its own environment and compiles none of them again."""

    def __init__(self) -> None:
        self._codes: dict[tuple[str, str], CodeType] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        """Give the bucket the code that was compiled from the same source."""
        bucket.code = self._codes.get((bucket.key, bucket.checksum))

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keep the code of the bucket."""
        if bucket.code is not None:
            self._codes[bucket.key, bucket.checksum] = bucket.code


_COMPILED: Final = CompiledTemplates()


def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        bytecode_cache=_COMPILED,
        # Whatever its name ends in: all that pages show is from outside.
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters = (
        showing.number,
        showing.large,
        showing.a_second,
        showing.foreign,
        showing.ending,
        showing.attribute,
        showing.octets,
        showing.commands,
        showing.terminal,
    )
    made.filters |= {each.__name__: each for each in filters}
    made.globals |= {"clock": showing.clock, "written": showing.written, "ago": showing.ago}
    made.globals |= {"error": showing.error, "static": static}
    made.globals |= {"once": lambda: secrets.token_urlsafe(16), "token": lambda: secrets.token_urlsafe(32)}
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
        shared: how the group stands, for live parts (bridge.web.pages.look).
        hosts: names by which it is called, besides `localhost` and addresses.
    """

    desk: Desk
    name: str
    clock: Callable[[], int] = lambda: int(time.time() * 1000)
    templates: Environment = field(default_factory=_environment, repr=False)
    live: Live = field(default_factory=Live, repr=False)
    shared: Shared[Any] = field(default_factory=Shared, repr=False)
    hearing: Hearing[Recorders] = field(init=False, repr=False)
    sessions: Sessions = field(init=False, repr=False)
    guesses: Guesses = field(init=False, repr=False)
    keeping: Keeping = field(init=False, repr=False)
    bearers: Bearers = field(init=False, repr=False)
    proxy: Proxy = field(init=False)
    issuer: "SigningIn | None" = field(init=False, repr=False)
    masking: Masking = field(init=False, repr=False)
    hosts: tuple[str, ...] = field(init=False)
    looking: Looking = field(init=False, repr=False)
    proofs: Proofs = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Take from the settings who may sign in how.

        Raises:
            ConsoleRefused: an issuer is set, and what it is asked with is not installed.
        """
        said = self.desk.settings.environment
        self.sessions = Sessions(self.desk, lambda: self.clock())
        self.guesses = Guesses()
        self.keeping = Keeping()
        self.bearers = Bearers(self.desk, Guesses(), lambda: self.clock())
        self.proxy = Proxy.of(said)
        self.issuer = _issuer(said, lambda: self.clock()) if said.DEADLETTERS_OIDC_ISSUER else None
        self.masking = Masking.of(said, lambda: self.clock())
        self.hosts = names(said.DEADLETTERS_CONSOLE_HOSTS, said.DEADLETTERS_CONSOLE_URL)
        recent = Recent(self.desk.settings)
        self.looking = Looking(lambda: asked_status(self.desk, recent))
        self.proofs = Proofs(self.desk)
        self.hearing = Hearing(lambda: recorders(self.desk.settings), Recorders())
        self.templates.globals["in_flower"] = self.in_flower

    def in_flower(self, task: str | None) -> str | None:
        """The address of a task's page in Flower; None where none is set up, or there is no task."""
        flower = self.desk.settings.environment.DEADLETTERS_FLOWER_URL.rstrip("/")
        return f"{flower}/task/{quote(task, safe='')}" if flower and task else None

    def recorders(self) -> Recorders:
        """Whether one lives, as Redis knows; where it is silent no page waits for it."""
        return self.hearing.latest()

    def macros(self, template: str) -> Any:
        """The macros of a template, for parts of a page by themselves."""
        return self.templates.get_template(template).module

    def page(self, request: Request, template: str, status: int = 200, **values: Any) -> HTMLResponse:
        """A page of a template, which has `console`, `now`, who asks and what they typed besides."""
        made = self.templates.get_template(template)
        around = {"who": asking(request), "path": request.url.path, "kept_form": kept(request) is not None}
        around |= {"at": _at(request), "typed": typed(request)}
        body = made.render(console=self, now=self.clock(), **(around | values))
        return HTMLResponse(body, status)

    def fault(self, request: Request, status: int, words: str, number: str = "", instead: str = "") -> HTMLResponse:
        """What is shown instead of a page.

        Parameters:
            number: by which the log has what happened.
            instead: what to do without the page.
        """
        return self.page(request, "fault.html", status, words=words, number=number, instead=instead)


def _issuer(said: EnvironmentSettings, clock: Callable[[], int]) -> "SigningIn":
    try:
        from bridge.web.oidc.signing import SigningIn
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("cryptography", "httpx2", "joserfc"):
            raise
        raise ConsoleRefused(f"DEADLETTERS_OIDC_ISSUER needs {error.name}; {how_to_install('oidc')}.") from None
    return SigningIn.of(said, clock)


def of(request: Request) -> Console:
    """The console that was asked."""
    found: Console = request.app.state.console
    return found


def asking(request: Request) -> Who:
    """Who asks."""
    return getattr(request.state, "who", NOBODY)


def masks(request: Request) -> Masks:
    """What who asks does not see."""
    return of(request).masking.of_who(asking(request))


def kept(request: Request) -> QueryParams | None:
    """What who asks had filled in of the page's form before they had to sign in; `None`: nothing."""
    found: QueryParams | None = getattr(request.state, "kept", None)
    return found


def typed(request: Request) -> QueryParams:
    """What stands in the page's form already: as it was sent, or was kept; empty where neither is so."""
    return getattr(request.state, "form", None) or kept(request) or QueryParams()


def _at(request: Request) -> str:
    """The address that was asked, without what was kept for it."""
    query = urlencode([pair for pair in request.query_params.multi_items() if pair[0] != "kept"])
    return request.url.path + (f"?{query}" if query else "")
