"""An issuer of OpenID Connect: a process of its own, that signs in whoever comes, with the claims that it is told."""

import base64
import hashlib
import hmac
import json
import secrets
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey

from tests.servers.process import free_port

ROOT = Path(__file__).parents[2]
CLIENT, SECRET = "console", "a secret: with + and %"
BACK = "https://localhost/sign-in/oidc/back"


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Go nowhere."""


class Issuer:
    """One issuer, on a port of this machine."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._told = folder / "issuer.json"
        self.says()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Begin to listen."""
        command = (sys.executable, "-m", "tests.servers.issuer", str(self.port), str(self._told))
        self._process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"listens\n"

    def stop(self) -> None:
        """Be away."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def says(
        self, *, key: int = 1, published: int | None = None, alg: str = "RS256", lives: int = 300, **claims: Any
    ) -> None:
        """Sign in whoever comes with these claims besides the usual ones; `None`: without that one.

        Parameters:
            key: the number of the one that signs.
            published: that of the one that is told; if not the same.
            lives: the seconds of a token of a machine (`client_credentials`).
        """
        self._told.write_text(
            json.dumps(
                {
                    "key": key,
                    "published": published or key,
                    "alg": alg,
                    "lives": lives,
                    "claims": {"sub": "248", **claims},
                }
            )
        )

    def comes_back(self, address: str) -> str:
        """Where a browser is sent that goes to an address of the issuer."""
        try:
            urllib.request.build_opener(_Stay).open(address, timeout=30)
        except urllib.error.HTTPError as answer:
            with answer:
                return str(answer.headers["location"]).removeprefix("https://localhost")
        raise AssertionError("it sends nobody back")


@contextmanager
def issuer(folder: Path) -> Iterator[Issuer]:
    """One that listens."""
    made = Issuer(folder)
    made.start()
    try:
        yield made
    finally:
        made.stop()


class _Handler(BaseHTTPRequestHandler):
    keys: dict[int, RSAKey] = {n: RSAKey.generate_key(2048, {"kid": f"key-{n}", "use": "sig"}) for n in (1, 2)}  # noqa: RUF012
    codes: dict[str, dict[str, str]] = {}  # noqa: RUF012

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        here = f"http://127.0.0.1:{sys.argv[1]}"
        if path == "/.well-known/openid-configuration":
            doors = {"authorization_endpoint": f"{here}/authorize", "token_endpoint": f"{here}/token"}
            self._answer(200, {"issuer": here, "jwks_uri": f"{here}/keys", **doors})
        elif path == "/keys":
            self._answer(200, KeySet([self.keys[_told()["published"]]]).as_dict())
        else:
            asked = dict(urllib.parse.parse_qsl(query))
            assert (asked["client_id"], asked["redirect_uri"]) == (CLIENT, BACK)
            assert (asked["response_type"], asked["code_challenge_method"]) == ("code", "S256")
            assert "openid" in asked["scope"].split()
            code = secrets.token_urlsafe(8)
            self.codes[code] = asked
            self.send_response(302)
            back = urllib.parse.urlencode({"code": code, "state": asked["state"], "iss": here})
            self.send_header("location", f"{BACK}?{back}")
            self.end_headers()

    def do_POST(self) -> None:
        form = dict(urllib.parse.parse_qsl(self.rfile.read(int(self.headers["content-length"])).decode()))
        name, _, secret = base64.b64decode(self.headers["authorization"].removeprefix("Basic ")).decode().partition(":")
        if form["grant_type"] == "client_credentials":
            # As it is: librdkafka encodes neither, though RFC 6749 says so.
            self._answer_machine(name, secret)
            return
        asked = self.codes.pop(form["code"], None)
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        if (
            asked is None
            or (name, urllib.parse.unquote_plus(secret)) != (CLIENT, SECRET)
            or _written(digest) != asked["code_challenge"]
            or form["redirect_uri"] != BACK
        ):
            self._answer(400, {"error": "invalid_grant", "error_description": SECRET})
        else:
            self._answer(
                200, {"access_token": "a", "token_type": "Bearer", "id_token": self._token(nonce=asked["nonce"])}
            )

    def _answer_machine(self, name: str, secret: str) -> None:
        """Give a client a token of its own, as Kafka's clients ask for."""
        if (name, secret) != (CLIENT, SECRET):
            self._answer(401, {"error": "invalid_client", "error_description": "Client authentication failed"})
        else:
            lives = _told()["lives"]
            token = self._token(aud="kafka", exp=int(time.time()) + lives, jti=secrets.token_hex(4))
            self._answer(200, {"access_token": token, "token_type": "Bearer", "expires_in": lives})

    def _token(self, **of_flow: Any) -> str:
        told, now = _told(), int(time.time())
        usual = {"iss": f"http://127.0.0.1:{sys.argv[1]}", "aud": CLIENT, "iat": now, "exp": now + 300}
        claims = {name: value for name, value in (usual | of_flow | told["claims"]).items() if value is not None}
        key, alg = self.keys[told["key"]], told["alg"]
        header = {"alg": alg, "kid": f"key-{told['published']}"}
        if alg == "RS256":
            return jwt.encode(header, claims, key)
        signed = ".".join(_written(json.dumps(each).encode()) for each in (header, claims))
        # HS256 by the public key: whoever takes any algorithm takes it for a signature.
        by_public = hmac.digest(key.as_pem(private=False), signed.encode(), "sha256")
        return f"{signed}.{_written(by_public) if alg == 'HS256' else ''}"

    def _answer(self, status: int, said: Any) -> None:
        body = json.dumps(said).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


def _written(part: bytes) -> str:
    return base64.urlsafe_b64encode(part).rstrip(b"=").decode()


def _told() -> Any:
    return json.loads(Path(sys.argv[2]).read_text())


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), _Handler)
    print("listens", flush=True)
    server.serve_forever()
