"""A real Kafka that asks who comes in: by password (SCRAM), by token (OAUTHBEARER) and by certificate (mTLS)."""

from collections.abc import Mapping
from pathlib import Path

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.servers.certificate import Authority
from tests.servers.issuer import Issuer
from tests.servers.kafka import KafkaServer
from tests.servers.process import free_port

_MODULES = "org.apache.kafka.common.security"
_VALIDATOR = f"{_MODULES}.oauthbearer.OAuthBearerValidatorCallbackHandler"
USER, PASSWORD = "bridge", "a password: with + and %"


class SecuredKafka(KafkaServer):
    """A Kafka with four listeners: one without a login for the tests, and one for each login.

    A token that the issuer has signed is good until it ends; a connection must then show the next one.

    Parameters:
        issuer: an issuer of OpenID Connect, whose tokens are good here.
        folder: for certificates; `authority` signs those of this Kafka and of its clients.
    """

    def __init__(self, issuer: Issuer, folder: Path) -> None:
        self.issuer = issuer
        self.authority = Authority("Kafka's", folder)
        self.ports = {name: free_port() for name in ("scram", "oauth", "mtls")}
        super().__init__()
        self.process.command.insert(1, f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={issuer.url}/keys")
        self.authority.sign("kafka", address="127.0.0.1")

    def start(self) -> None:
        super().start()
        made = UserScramCredentialUpsertion(
            USER, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), PASSWORD.encode()
        )
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        for done in admin.alter_user_scram_credentials([made]).values():
            done.result(30)

    def login(self, name: str) -> Mapping[str, str]:
        """The variables of a client that comes in by a listener, but for its secret."""
        here = {"KAFKA_BOOTSTRAP_SERVERS": f"127.0.0.1:{self.ports[name]}"}
        trust = {"KAFKA_SSL_CA_LOCATION": str(self.authority.certificate)}
        if name == "scram":
            return {
                **here,
                **trust,
                "KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
                "KAFKA_SASL_MECHANISM": "SCRAM-SHA-512",
                "KAFKA_SASL_USERNAME": USER,
            }
        if name == "oauth":
            return {**here, "KAFKA_SECURITY_PROTOCOL": "SASL_PLAINTEXT", "KAFKA_SASL_MECHANISM": "OAUTHBEARER"}
        return {**here, **trust, "KAFKA_SECURITY_PROTOCOL": "SSL"}

    def _further_listeners(self) -> dict[str, str]:
        protocols = {"SCRAM": "SASL_SSL", "OAUTH": "SASL_PLAINTEXT", "MTLS": "SSL"}
        here = ",".join(
            [f"PLAINTEXT://{self.bootstrap_servers}"]
            + [f"{name.upper()}://127.0.0.1:{port}" for name, port in self.ports.items()]
        )
        known = ",".join(f"{name}:{protocol}" for name, protocol in protocols.items())
        oauth = "listener.name.oauth.oauthbearer"
        return {
            "listeners": f"{here},CONTROLLER://127.0.0.1:{self._controller_port}",
            "advertised.listeners": here,
            "listener.security.protocol.map": f"CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,{known}",
            "inter.broker.listener.name": "PLAINTEXT",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.authority.folder / "kafka.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority.certificate),
            "listener.name.mtls.ssl.client.auth": "required",
            "listener.name.scram.sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.scram.scram-sha-512.sasl.jaas.config": f"{_MODULES}.scram.ScramLoginModule required;",
            "listener.name.oauth.sasl.enabled.mechanisms": "OAUTHBEARER",
            f"{oauth}.sasl.jaas.config": f"{_MODULES}.oauthbearer.OAuthBearerLoginModule required;",
            f"{oauth}.sasl.server.callback.handler.class": _VALIDATOR,
            f"{oauth}.sasl.oauthbearer.jwks.endpoint.url": f"{self.issuer.url}/keys",
            f"{oauth}.sasl.oauthbearer.expected.issuer": self.issuer.url,
            f"{oauth}.sasl.oauthbearer.expected.audience": "kafka",
            # At most: a token that ends before does so for the connection too.
            f"{oauth}.connections.max.reauth.ms": "60000",
        }
