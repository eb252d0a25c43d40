"""A trusted proxy that signs users in by a header, and the sender address behind it (pure)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from starlette.datastructures import Headers

from bridge.deadletters.accounts.account_session import SessionAccount
from bridge.deadletters.accounts.user_account import Role
from bridge.deadletters.model.letter_scope import LetterScope, read_patterns
from bridge.errors import ProxyRefused, ScopeFault
from bridge.settings.address_values import read_networks
from bridge.settings.setting_defaults import EnvironmentSettings


@dataclass(frozen=True)
class TrustedProxy:
    """The proxy that is trusted, and the headers that it sets.

    Attributes:
        trusted: the addresses of the proxy.
        user_header: the header with the user's name; "": none.
        role_header: the header with the role; "": all users have `role`.
        topics_header, groups_header: the headers with the patterns of topics and of consumer groups that the user sees;
            "": all.
    """

    trusted: tuple[IPv4Network | IPv6Network, ...] = ()
    user_header: str = ""
    role_header: str = ""
    role: Role = Role.NOBODY
    topics_header: str = ""
    groups_header: str = ""

    @classmethod
    def from_environment(cls, said: EnvironmentSettings) -> "TrustedProxy":
        """Return the proxy in the settings."""
        return cls(
            read_networks(said.DEADLETTERS_TRUSTED_PROXY),
            said.DEADLETTERS_PROXY_USER_HEADER,
            said.DEADLETTERS_PROXY_ROLE_HEADER,
            Role.read(said.DEADLETTERS_PROXY_ROLE) or Role.NOBODY,
            said.DEADLETTERS_PROXY_TOPICS_HEADER,
            said.DEADLETTERS_PROXY_CONSUMER_GROUPS_HEADER,
        )

    def signed_in(self, peer: str, headers: Headers) -> SessionAccount | None:
        """Return the account of the user that the proxy has signed in; `None` if it names nobody.

        Parameters:
            peer: the address that the request came from.

        Raises:
            ProxyRefused: the peer is not the proxy, or sends the header twice, or names an unknown role, or no topics
                where it has to.
        """
        scopes = (self.topics_header, self.groups_header)
        names = [name for name in (self.user_header, self.role_header, *scopes) if name]
        said = {name: headers.getlist(name) for name in names}
        if not any(said.values()):
            return None
        if not self.trusts(peer):
            raise ProxyRefused(
                f"The header {' or '.join(names)} is believed of the proxy alone (DEADLETTERS_TRUSTED_PROXY), and this "
                "did not come from it."
            )
        if any(len(values) > 1 for values in said.values()):
            raise ProxyRefused("The proxy says twice who you are: it must take off what a browser sends.")
        user = "".join(said[self.user_header]).strip()
        if not user:
            return None
        role = self._role("".join(said.get(self.role_header, [])).strip())
        return SessionAccount(user, role, _read_scope(self.topics_header, self.groups_header, said))

    def _role(self, word: str) -> Role:
        role = Role.read(word) if self.role_header else self.role
        if role is None:
            raise ProxyRefused(
                f"The proxy gives you no role here: its header {self.role_header} must say viewer, operator or admin."
            )
        return role

    def trusts(self, peer: str) -> bool:
        """Return whether a request comes from the proxy."""
        address = _read_address(peer)
        return address is not None and any(address in network for network in self.trusted)

    def sender(self, peer: str, headers: Headers) -> str:
        """Return the address that wrong passwords are counted for: behind a proxy, the client's that it reports."""
        passed = [each.strip() for value in headers.getlist("x-forwarded-for") for each in value.split(",")]
        way = [*passed, peer]
        seen = next((each for each in reversed(way) if not self.trusts(each)), peer)
        address = _read_address(seen)
        return str(ip_network((address, 64), strict=False) if isinstance(address, IPv6Address) else address or peer)


def _read_scope(topics: str, groups: str, said: Mapping[str, Sequence[str]]) -> LetterScope:
    """Return the scope in two headers. A header that is set in the settings and missing covers nothing.

    Raises:
        ProxyRefused: it covers nothing, or a pattern is invalid.
    """
    fields = ((topics, "topics"), (groups, "consumer groups"))
    try:
        return LetterScope(*(read_patterns(said[name] or [""], words) if name else () for name, words in fields))
    except ScopeFault as error:
        headers = " or ".join(filter(None, (topics, groups)))
        raise ProxyRefused(f"The proxy does not say what you see here (its header {headers}): {error}") from None


def _read_address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
