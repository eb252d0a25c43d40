"""The errors of the bridge: what happened, and what to do about it."""

from collections.abc import Mapping, Sequence


class BridgeError(Exception):
    """The base class of the bridge's own errors."""


class SettingsError(BridgeError):
    """Settings are invalid; all faults are listed, so that one start finds them all.

    Parameters:
        faults: one sentence each, with what is wrong and what to do.
    """

    def __init__(self, faults: Sequence[str]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(f"- {fault}" for fault in self.faults))


class AppNotFound(BridgeError):
    """The Celery app named by -A could not be imported."""


class MalformedDelivery(BridgeError):
    """A Celery message for one of our handlers has a `kafka` header that the bridge did not write."""


class PublishFailed(BridgeError):
    """Kafka did not acknowledge a record in time; nothing may be settled because of it."""


class NeverPublished(PublishFailed):
    """Kafka will never take the record, however often it is sent."""


class RecordTooLarge(NeverPublished):
    """Kafka refuses the record for its size; only a larger limit on the topic can help."""


class RefusedWithOthers(PublishFailed):
    """Kafka refuses the record, or another one of the same batch."""


class HandoffFailed(BridgeError):
    """The Celery broker did not confirm a hand-off; its deliveries must be handed off again.

    Attributes:
        confirmed: how many messages at the beginning of it are in the broker all the same.
    """

    confirmed = 0


class KafkaUnavailable(BridgeError):
    """Kafka did not answer in time."""


class NoSuchRecord(BridgeError):
    """Kafka gives no record at these coordinates; the message says why."""


class TokenUnavailable(BridgeError):
    """The function of KAFKA_OAUTH_CB gave no token for Kafka; the message names the setting."""


class ConsumerFailed(BridgeError):
    """Kafka's client cannot go on, but a new one can: the bridge ends, to be restarted."""


class LedgerUnavailable(BridgeError):
    """The ledger's Redis is unavailable or refused; nothing may be settled or committed because of it."""


class LedgerNotSynced(LedgerUnavailable):
    """The append-only file of the ledger's Redis did not reach the disk in time; everything else works."""


class LedgerCannotFsync(BridgeError):
    """The ledger's Redis cannot confirm that its append-only file is on disk."""


class UnfitRedis(BridgeError):
    """The ledger's Redis is of a kind that cannot keep a ledger."""


class ClusteredRedis(UnfitRedis):
    """The ledger's Redis is a node of Redis Cluster, which cannot write keys of several slots in one step."""


class EvictingRedis(UnfitRedis):
    """The ledger's Redis evicts keys when it is full, fates among them."""


class CannotSettle(BridgeError):
    """A delivery's mark cannot be written in one transaction with the handler's work; nothing was written."""


class UnreadableRecord(BridgeError):
    """Kafka's client for Python cannot read a record."""


class AlreadySettled(BridgeError):
    """An earlier run committed the work of this delivery; the transaction of this run must be rolled back."""


class EmbeddedServerFailed(BridgeError):
    """An embedded server could not be started."""


class CannotReset(BridgeError):
    """The offsets of a group cannot be moved as requested."""


class NoMoment(BridgeError):
    """A value is neither a time nor an offset of a topic."""


class NothingAnswers(BridgeError):
    """Neither Kafka nor Redis responds."""


class UnknownHandler(BridgeError):
    """No handler has this name."""


class PolicyRefused(BridgeError):
    """A policy cannot be changed as requested; nothing was decided."""


class HaltRefused(BridgeError):
    """A handler or a key cannot be halted as requested; nothing was decided."""


class UnknownTopic(BridgeError):
    """No handler names this topic, or ever named it."""


class NotDecided(BridgeError):
    """Neither Kafka nor Redis acknowledged a halt or a policy; Kafka may still get it."""


class UnfitTopic(BridgeError):
    """A managed topic would drop records before anybody has read them."""


class DeskUnavailable(BridgeError):
    """The dead letters' database could not be opened, or failed."""


class NoDatabase(DeskUnavailable):
    """The dead letters' database does not exist, and a reader does not create it."""


class DeskRefused(DeskUnavailable):
    """The dead letters' database refuses what it was given: trying again does not help."""


class DeskOfAnotherKafka(DeskUnavailable):
    """The dead letters' database belongs to another Kafka cluster."""


class RecordedElsewhere(DeskUnavailable):
    """A living recorder of the same group records into another database: each would get a part of the dead letters."""


class RecordedByAnother(BridgeError):
    """Another recorder has recorded these partitions further in the meantime; nothing was written.

    Parameters:
        logs: the partitions' logs, each named by its `str`.
    """

    def __init__(self, logs: Sequence[object]) -> None:
        self.logs = tuple(logs)
        super().__init__(f"another recorder has recorded {', '.join(map(str, logs))} further meanwhile")


class DeskDatabaseNewer(DeskUnavailable):
    """The dead letters' database has a migration that this version does not know."""


class NoSuchStep(BridgeError):
    """This version does not have the requested migration of the dead letters' database."""


class RecordingNotEnded(BridgeError):
    """The end of recording cannot be noted: why, and what to do."""


class RegistryUnavailable(BridgeError):
    """The schema registry did not answer, or refuses to; the value that asked for a schema is not at fault.

    Attributes:
        down_for: seconds since the first failed request without a success in between.
    """

    def __init__(self, why: str, down_for: float = 0.0) -> None:
        super().__init__(why)
        self.down_for = down_for


class ValueUnfit(BridgeError):
    """A value does not fit the schema that it names, or names one that the registry does not have."""


class SchemaPending(ValueUnfit):
    """A value names a schema that the registry does not have; a registry that lags may have it within the minute."""


class NoJson(BridgeError):
    """A value is no JSON, or cannot be written again without a loss."""


class PatchRefused(BridgeError):
    """A value is no JSON Patch."""


class PatchDoesNotApply(BridgeError):
    """A JSON Patch does not apply to a value: its target is missing, or differs."""


class FilterFault(BridgeError):
    """A filter of dead letters is invalid, or can match none."""


class CopyRefused(BridgeError):
    """Dead letters cannot be copied to the requested target."""


class EditRefused(BridgeError):
    """A dead letter cannot be sent back with the edited value; nothing was sent."""


class ErasureRefused(BridgeError):
    """A person cannot be erased as requested; nothing was erased."""


class RedriveRefused(BridgeError):
    """A range of a topic cannot be sent again as requested; nothing was sent."""


class NoExport(BridgeError):
    """A file is no export of dead letters, has an unreadable line, or is of another Kafka cluster."""


class NotArchived(BridgeError):
    """Dead letters could not be written to the archive, and stay in the database."""


class NoSuchPlan(BridgeError):
    """No plan has that number."""


class PlanRefused(BridgeError):
    """A plan cannot be made like this, or not be applied now: why, and what to do."""


class PlanChanged(PlanRefused):
    """A plan, or its dead letters, changed after the user confirmed it; nothing was done."""


class PlanHeld(PlanRefused):
    """Another process applies a plan now: try again later."""


class GroupChanged(BridgeError):
    """A failure group changed after the user confirmed the action; nothing was done."""


class PlanOver(BridgeError):
    """A plan that is being applied is done, or somebody has stopped it."""


class PlanTakenOver(BridgeError):
    """Another process has taken over a plan: this one's lease expired."""


class NoSuchLetter(BridgeError):
    """No dead letter has this number."""


class ConsoleRefused(BridgeError):
    """The console cannot be served like this: why, and what to do."""


class AnswerTimeout(BridgeError):
    """The console gave up waiting for an answer of its own; the request may still be carried out."""


class ProxyRefused(BridgeError):
    """A request's claim about its sender is not trusted: why, and what to do."""


class IssuerUnavailable(BridgeError):
    """The OpenID Connect issuer does not respond, or not as one: nobody can sign in by it until it does."""


class SignInRefused(BridgeError):
    """An OpenID Connect issuer's claims are not trusted, or give no role: why, and what to do."""


class TooManySignIn(BridgeError):
    """Too many users sign in to the console at once; existing sessions go on."""


class UserRefused(BridgeError):
    """A console user cannot be added or changed like this: why, and what to do."""


class UserChanged(UserRefused):
    """A console user changed after the action was confirmed; nothing was done."""


class WebhookRefused(BridgeError):
    """A webhook cannot be created, changed or called like this: why, and what to do."""


class NoSuchGroup(BridgeError):
    """No failure group has this number."""


class ScopeFault(BridgeError):
    """A scope of topics and consumer groups is malformed."""


class OutsideScope(BridgeError):
    """An account whose scope leaves letters out may not do this."""


class TokenRefused(BridgeError):
    """A token cannot be created or revoked like this: why, and what to do."""


class KeyReused(BridgeError):
    """The same idempotency key was used for another request; nothing was done."""


class RequestUnderWay(BridgeError):
    """The same request is in flight."""


class RequestTakenOver(BridgeError):
    """Another process has taken over a request, since this one was inactive for too long; this one did nothing."""


class RequestRefused(BridgeError):
    """A request to the console's API is refused: why, and what to do.

    Parameters:
        name: the kind of problem (bridge.console.api.problem_details).
        detail: what happened, and what to do.
        headers: of the response.
        more: further members of the response, for programs.
    """

    def __init__(self, name: str, detail: str, headers: Mapping[str, str] | None = None, **more: object) -> None:
        self.name, self.headers, self.more = name, dict(headers or {}), more
        super().__init__(detail)


class UnreadableJson(ValueError):
    """A text is no JSON, or exceeds the limits. The message never quotes the text, which may hold a secret."""


def how_to_install(*extras: str) -> str:
    """Return the command that installs extras from a clone, as no package index has the project.

    >>> how_to_install("console")
    "in a clone of the project's repository: pip install '.[console]'"
    """
    return f"in a clone of the project's repository: pip install '.[{','.join(extras)}]'"
