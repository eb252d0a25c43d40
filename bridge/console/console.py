"""The `Console` that pages and the API share: store, sign-in, caches, and the Jinja environment."""

import hashlib
import secrets
import time
from collections.abc import Callable
from copy import copy
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

from bridge.console import shown_zone, template_filters
from bridge.console.audit_cache import AuditCache, NarrowedAuditCache
from bridge.console.auth import permissions
from bridge.console.auth.authorization import ANONYMOUS, MaskAccess, Principal
from bridge.console.auth.bearer_tokens import BearerTokens
from bridge.console.auth.browser_session import BrowserSessions
from bridge.console.auth.http_security import list_host_names
from bridge.console.auth.login_throttle import LoginThrottle
from bridge.console.auth.sign_in_audit import SignInAudit
from bridge.console.auth.trusted_proxy import TrustedProxy
from bridge.console.confirmation import PendingConfirmation
from bridge.console.form_drafts import FormDrafts
from bridge.console.live_snapshot import LiveSnapshots
from bridge.console.narrowed_status import NarrowedStatusCache, ScopedView
from bridge.console.page_help import find_help
from bridge.console.status_cache import BackgroundCache, GroupStatus, SharedAnswer, make_status_cache, read_group_status
from bridge.console.template_filters import format_duration
from bridge.deadletters.dead_letter_service import DeadLetterService
from bridge.deadletters.inspection.recorder_presence import RecorderPresence, read_recorder_presence
from bridge.deadletters.masking.letter_mask import LetterMasks
from bridge.deadletters.model.failure_group import describe_cause
from bridge.deadletters.model.letter_view import LetterView
from bridge.errors import ConsoleRefused, how_to_install
from bridge.formats.attempt_history import AttemptNote
from bridge.formats.log_link import fill_log_link
from bridge.formats.trace_context import TRACE_ID
from bridge.handler_routes import Routes
from bridge.kafka.dead_letter_reader import RecentDeadLetters
from bridge.settings.setting_defaults import EnvironmentSettings

if TYPE_CHECKING:
    # An extra of its own: imported only if an issuer is set.
    from bridge.console.auth.oidc_client import OidcSignIn

CONSOLE_FOLDER: Final = Path(__file__).parent
STATIC_FOLDER: Final = CONSOLE_FOLDER / "static"
#: The themes that the cookie `theme` may name; any other value is the system's theme.
THEMES: Final = frozenset({"light", "dark"})
#: Seconds between two questions which recorders there are, and that a page waits for the answer.
PRESENCE_PERIOD: Final = 5.0
PRESENCE_WITHIN: Final = 0.3


class CompiledTemplates(BytecodeCache):
    """The compiled templates of this process, shared by the environments of all its consoles."""

    def __init__(self) -> None:
        self._codes: dict[tuple[str, str], CodeType] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        """Load the code that was compiled from the same source."""
        bucket.code = self._codes.get((bucket.key, bucket.checksum))

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keep the code of the bucket."""
        if bucket.code is not None:
            self._codes[bucket.key, bucket.checksum] = bucket.code


_COMPILED: Final = CompiledTemplates()


def _build_environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(CONSOLE_FOLDER / "templates"),
        bytecode_cache=_COMPILED,
        # For every file name: all values on pages come from outside.
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters = (
        template_filters.number,
        template_filters.large,
        template_filters.a_second,
        template_filters.foreign,
        template_filters.ending,
        template_filters.attribute,
        template_filters.octets,
        template_filters.copied,
        template_filters.commands,
        describe_cause,
        template_filters.terminal,
    )
    made.filters |= {each.__name__: each for each in filters}
    made.globals |= {
        "clock": template_filters.format_time,
        "written": template_filters.format_iso_time,
        "ago": template_filters.format_age,
        "zone": shown_zone.name_current_zone,
    }
    made.globals |= {"error": template_filters.describe_error, "static": build_static_address}
    made.globals |= {"once": lambda: secrets.token_urlsafe(16), "token": lambda: secrets.token_urlsafe(32)}
    made.globals |= {"lasting": format_duration, "release": compute_release, "permissions": permissions}
    return made


@cache
def build_static_address(name: str) -> str:
    """Return the address of a static file; it has the file's hash, so it may be cached for ever."""
    digest = hashlib.sha256((STATIC_FOLDER / name).read_bytes()).hexdigest()[:12]
    return f"/static/{digest}/{name}"


@cache
def compute_release() -> str:
    """Return a hash of all that browsers get: live parts of another release do not fit an open page."""
    files = sorted((*STATIC_FOLDER.iterdir(), *(CONSOLE_FOLDER / "templates").iterdir()))
    return hashlib.sha256(b"".join(each.read_bytes() for each in files)).hexdigest()[:12]


@dataclass
class Console:
    """One console: the store, the sign-in, the caches and the templates that pages and the API share.

    Attributes:
        name: the group and its Kafka, for the top bar: `payments @ kafka-eu-1:9092`.
        clock: ms since the epoch.
        live_view: the status view of the group, for live parts (bridge.console.pages.status_view).
        hosts: the host names that it answers to, besides `localhost` and IP addresses.
    """

    desk: DeadLetterService
    name: str
    clock: Callable[[], int] = lambda: int(time.time() * 1000)
    templates: Environment = field(default_factory=_build_environment, repr=False)
    live: LiveSnapshots = field(default_factory=LiveSnapshots, repr=False)
    live_view: SharedAnswer[Any] = field(default_factory=SharedAnswer, repr=False)
    recorder_presence: BackgroundCache[RecorderPresence] = field(init=False, repr=False)
    sessions: BrowserSessions = field(init=False, repr=False)
    login_throttle: LoginThrottle = field(init=False, repr=False)
    sign_in_audit: SignInAudit = field(init=False, repr=False)
    form_drafts: FormDrafts = field(init=False, repr=False)
    bearers: BearerTokens = field(init=False, repr=False)
    proxy: TrustedProxy = field(init=False)
    issuer: "OidcSignIn | None" = field(init=False, repr=False)
    masking: MaskAccess = field(init=False, repr=False)
    hosts: tuple[str, ...] = field(init=False)
    status_cache: BackgroundCache[GroupStatus] | NarrowedStatusCache = field(init=False, repr=False)
    #: The handlers of all topics, whatever the principal sees.
    whole_routes: Routes = field(init=False, repr=False)
    audit_cache: AuditCache | NarrowedAuditCache = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Read from the settings how users sign in.

        Raises:
            ConsoleRefused: an issuer is set, and its extra is not installed.
        """
        said, self.whole_routes = self.desk.settings.environment, self.desk.routes
        self.sessions = BrowserSessions(self.desk, lambda: self.clock())
        self.login_throttle = LoginThrottle()
        self.sign_in_audit = SignInAudit(self.desk)
        self.form_drafts = FormDrafts()
        self.bearers = BearerTokens(self.desk, LoginThrottle(), lambda: self.clock())
        self.proxy = TrustedProxy.from_environment(said)
        self.issuer = _build_oidc_sign_in(said, lambda: self.clock()) if said.DEADLETTERS_OIDC_ISSUER else None
        self.masking = MaskAccess.from_environment(said, lambda: self.clock())
        self.hosts = list_host_names(said.DEADLETTERS_CONSOLE_HOSTS, said.DEADLETTERS_CONSOLE_URL)
        recent = RecentDeadLetters(self.desk.settings)
        self.status_cache = make_status_cache(lambda: read_group_status(self.desk, recent))
        self.audit_cache = AuditCache(self.desk)
        self.recorder_presence = BackgroundCache(
            "the recorders", lambda: read_recorder_presence(self.desk.settings), PRESENCE_PERIOD, PRESENCE_WITHIN
        )
        self.templates.globals["in_flower"] = self.in_flower
        self.templates.globals["in_traces"] = self.in_traces
        self.templates.globals["in_logs"] = self.in_logs

    def for_principal(self, who: Principal) -> "Console":
        """Return the console as a principal sees it: with a scope, all of it answers for covered letters and topics."""
        if not who.scope or not isinstance(self.status_cache, BackgroundCache):
            return self
        assert isinstance(self.audit_cache, AuditCache)
        view = ScopedView(who.scope, self.desk.settings.group, self.whole_routes)
        made = copy(self)
        made.desk = self.desk.for_scope(who.scope, who.name)
        made.status_cache = NarrowedStatusCache(self.status_cache, view)
        made.audit_cache = self.audit_cache.only(view.covers)
        made.live_view = SharedAnswer()
        return made

    def in_flower(self, task: str | None) -> str | None:
        """Return the address of a task's page in Flower; None if Flower is not set up or there is no task."""
        flower = self.desk.settings.environment.DEADLETTERS_FLOWER_URL.rstrip("/")
        return f"{flower}/task/{quote(task, safe='')}" if flower and task else None

    def in_traces(self, trace_id: str) -> str | None:
        """Return the address of a trace's page; None if no tracing system is set up or there is no trace."""
        address = self.desk.settings.environment.DEADLETTERS_TRACE_URL
        return address.replace(TRACE_ID, trace_id) if address and trace_id else None

    def in_logs(self, letter: LetterView, attempt: AttemptNote | None = None) -> str | None:
        """Return the address of a letter's log lines, or of those of one attempt; None if no template is set up."""
        begins, ends = letter.first_failed_at, letter.listed.failed_at
        if attempt is not None:
            begins, ends = attempt.ended_at - (attempt.took or 0), attempt.ended_at
        template = self.desk.settings.environment.DEADLETTERS_LOGS_URL
        return fill_log_link(template, letter.listed.name, letter.trace_id, begins, ends)

    def recorders(self) -> RecorderPresence:
        """Return the recorders whose heartbeat Redis has; no page waits for a Redis that does not respond."""
        # Recorders are about the letters of all.
        return RecorderPresence() if self.desk.scope else self.recorder_presence.read() or RecorderPresence()

    def macros(self, template: str) -> Any:
        """Return the macros of a template, to render parts of a page."""
        return self.templates.get_template(template).module

    def page(self, request: Request, template: str, status: int = 200, **values: Any) -> HTMLResponse:
        """Render a template, with `console`, `now`, the principal and the typed values."""
        made = self.templates.get_template(template)
        around = {
            "who": get_principal(request),
            "path": request.url.path,
            "kept_form": get_form_draft(request) is not None,
            "theme": theme if (theme := request.cookies.get("theme")) in THEMES else None,
        }
        pending = PendingConfirmation(request, get_principal(request), self.clock())
        route = getattr(request.state, "page", None)
        around |= {"confirmation": pending.take, "help": route and find_help(route.path)}
        around |= {"zone_key": str(shown_zone.get_zone())}
        around |= {"at": _get_current_address(request), "typed": get_typed_values(request)}
        body = made.render(console=self, now=self.clock(), **(around | values))
        answer = HTMLResponse(body, status)
        pending.clear(answer)
        return answer

    def fault(self, request: Request, status: int, message: str, number: str = "", instead: str = "") -> HTMLResponse:
        """Render the error page.

        Parameters:
            number: the id of the error in the log.
            instead: what to do without the page.
        """
        return self.page(request, "error-page.html", status, message=message, number=number, instead=instead)


def _build_oidc_sign_in(said: EnvironmentSettings, clock: Callable[[], int]) -> "OidcSignIn":
    try:
        from bridge.console.auth.oidc_client import OidcSignIn
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("cryptography", "joserfc"):
            raise
        raise ConsoleRefused(f"DEADLETTERS_OIDC_ISSUER needs {error.name}; {how_to_install('oidc')}.") from None
    return OidcSignIn.from_environment(said, clock)


def get_console(request: Request) -> Console:
    """Return the console that serves a request, as its principal sees it."""
    found: Console = getattr(request.state, "console", None) or request.app.state.console
    return found


def get_principal(request: Request) -> Principal:
    """Return the principal of a request."""
    return getattr(request.state, "who", ANONYMOUS)


def get_masks(request: Request) -> LetterMasks:
    """Return the masks that hold for the principal of a request."""
    return get_console(request).masking.of_who(get_principal(request))


def get_form_draft(request: Request) -> QueryParams | None:
    """Return the values that were typed into the page's form before a new sign-in; `None` if there are none."""
    found: QueryParams | None = getattr(request.state, "kept", None)
    return found


def get_typed_values(request: Request) -> QueryParams:
    """Return the values of the page's form, as sent or as kept over a sign-in; empty if there are neither."""
    return getattr(request.state, "form", None) or get_form_draft(request) or QueryParams()


def _get_current_address(request: Request) -> str:
    """Return the address of a request without the id of its kept form."""
    query = urlencode([pair for pair in request.query_params.multi_items() if pair[0] != "kept"])
    return request.url.path + (f"?{query}" if query else "")
