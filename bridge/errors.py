"""Every error of the bridge: what happened, and what to do about it."""

from collections.abc import Mapping, Sequence


class BridgeError(Exception):
    """The base of all errors that the bridge raises on purpose."""


class SettingsError(BridgeError):
    """Settings are wrong; every fault is listed, so that one start finds them all.

    Parameters:
        faults: one sentence each, saying what is wrong and what to do.
    """

    def __init__(self, faults: Sequence[str]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(f"- {fault}" for fault in self.faults))


class AppNotFound(BridgeError):
    """The Celery app named by -A could not be imported."""


class MalformedDelivery(BridgeError):
    """A Celery message names a handler of ours, but its `kafka` header is not one that the bridge wrote."""


class PublishFailed(BridgeError):
    """Kafka did not acknowledge a record in time; nothing may be settled on the strength of it."""


class NeverPublished(PublishFailed):
    """Kafka will never take the record, however often it is asked."""


class RecordTooLarge(NeverPublished):
    """Kafka refuses the record for its size; only a larger limit on the topic can help."""


class RefusedWithOthers(PublishFailed):
    """Kafka refuses the record, or another one that was written with it."""


class HandoffFailed(BridgeError):
    """The Celery broker did not confirm a hand-off; what it carried must be handed off again."""


class KafkaUnavailable(BridgeError):
    """Kafka did not answer in time."""


class ConsumerFailed(BridgeError):
    """Kafka's client cannot go on; one that is made anew can, so the bridge ends, to be started again."""


class LedgerUnavailable(BridgeError):
    """The ledger's Redis did not do what it was asked; nothing may be settled or committed on the strength of it."""


class LedgerNotSynced(LedgerUnavailable):
    """The append-only file of the ledger's Redis did not reach the disk in time; all else works."""


class LedgerCannotFsync(BridgeError):
    """The ledger's Redis can never say that its append-only file is on disk."""


class UnfitRedis(BridgeError):
    """The ledger's Redis is of a kind that cannot keep a ledger."""


class ClusteredRedis(UnfitRedis):
    """The ledger's Redis is a node of Redis Cluster, which does no step over keys of several slots."""


class EvictingRedis(UnfitRedis):
    """The ledger's Redis drops keys when it is full, fates among them."""


class CannotSettle(BridgeError):
    """A delivery's mark cannot be written with the handler's work in one transaction; nothing was written."""


class UnreadableRecord(BridgeError):
    """Kafka's client for Python cannot read a record."""


class AlreadySettled(BridgeError):
    """The work of this delivery was committed by an earlier run; the transaction of this one must be rolled back."""


class EmbeddedServerFailed(BridgeError):
    """An embedded server could not be started."""


class CannotReset(BridgeError):
    """The offsets of a group cannot be moved as asked."""


class NoMoment(BridgeError):
    """What was given as a time or an offset of a topic is none."""


class NothingAnswers(BridgeError):
    """Neither Kafka nor Redis could be asked."""


class UnknownHandler(BridgeError):
    """No handler has this name."""


class PolicyRefused(BridgeError):
    """A policy cannot be changed as asked; nothing was decided."""


class UnknownTopic(BridgeError):
    """No handler names this topic, and none ever did."""


class NotDecided(BridgeError):
    """A halt, or a policy, was acknowledged neither by Kafka nor by Redis; what Kafka did not answer may arrive yet."""


class UnfitTopic(BridgeError):
    """A topic of ours would drop what is written to it before anybody has read it."""


class DeskUnavailable(BridgeError):
    """The dead letters' database could not be opened, or did not do what it was asked."""


class NoDatabase(DeskUnavailable):
    """There is no dead letters' database where one is looked for, and who only looks makes none."""


class DeskRefused(DeskUnavailable):
    """The dead letters' database answers, and does not take what it was given: trying again does not help."""


class DeskOfAnotherKafka(DeskUnavailable):
    """The dead letters' database holds those of another Kafka cluster."""


class RecordedElsewhere(DeskUnavailable):
    """A living recorder of the same group records into another database: the two would share the letters out."""


class RecordedByAnother(BridgeError):
    """Another recorder has recorded these partitions further meanwhile; nothing was written.

    Parameters:
        logs: which, each as its `str` names it.
    """

    def __init__(self, logs: Sequence[object]) -> None:
        self.logs = tuple(logs)
        super().__init__(f"another recorder has recorded {', '.join(map(str, logs))} further meanwhile")


class DeskDatabaseNewer(DeskUnavailable):
    """The dead letters' database was brought to a step that this version does not know."""


class NoSuchStep(BridgeError):
    """A step of the dead letters' database is asked for that this version does not have."""


class RecordingNotEnded(BridgeError):
    """That no recorder is to run any more cannot be said: why, and what to do."""


class NoJson(BridgeError):
    """A value is no JSON, or one that could not be written again without a loss."""


class PatchRefused(BridgeError):
    """What was given as a JSON Patch is none."""


class PatchDoesNotApply(BridgeError):
    """A value has nothing there where a JSON Patch is to change it, or not what it is to have."""


class FilterFault(BridgeError):
    """What was asked of the dead letters can mean none of them, or is written wrongly."""


class CopyRefused(BridgeError):
    """Letters cannot be copied to where it was asked."""


class EditRefused(BridgeError):
    """A letter cannot be sent back with the value that it was given; nothing was sent."""


class RedriveRefused(BridgeError):
    """A range of a topic cannot be sent again as asked; nothing was sent."""


class NoExport(BridgeError):
    """A file is no export of dead letters, or a line of it cannot be read; or it is of another Kafka."""


class NotArchived(BridgeError):
    """What was to leave the dead letters' database could not be written to its archive, and has not left it."""


class NoSuchPlan(BridgeError):
    """The desk has no plan of that number."""


class PlanRefused(BridgeError):
    """A plan of the desk cannot be made so, or not be done now: why, and what to do."""


class PlanChanged(PlanRefused):
    """Somebody was quicker: a plan, or what it is about, is not as it was when it was decided on; nothing was done."""


class PlanHeld(PlanRefused):
    """Another process applies a plan of the desk now: it may be asked for again later."""


class GroupChanged(BridgeError):
    """Somebody was quicker: a group is not as it was when it was decided on; nothing was done."""


class PlanOver(BridgeError):
    """A plan of the desk that is being applied is done, or somebody has stopped it."""


class PlanTakenOver(BridgeError):
    """Another process applies a plan of the desk: this one was away for longer than its lease."""


class NoSuchLetter(BridgeError):
    """The desk has no dead letter of this number."""


class ConsoleRefused(BridgeError):
    """The console cannot be served so: why, and what to do."""


class AnswerTimeout(BridgeError):
    """The console gave up waiting for an answer of its own; what was asked may still be done."""


class ProxyRefused(BridgeError):
    """What a request to the console says of who sends it is not believed: why, and what to do."""


class IssuerUnavailable(BridgeError):
    """The issuer of OpenID Connect does not answer, or not as one: nobody signs in by it until it does."""


class SignInRefused(BridgeError):
    """What an issuer of OpenID Connect says of somebody is not believed, or gives them no role: why, and what to do."""


class TooManySignIn(BridgeError):
    """Too many people sign in to the console at once; others go on with what they do."""


class UserRefused(BridgeError):
    """A user of the console cannot be added or changed so: why, and what to do."""


class UserChanged(UserRefused):
    """Somebody was quicker: a user is not as they were when it was decided on; nothing was done."""


class WebhookRefused(BridgeError):
    """A webhook cannot be so, be changed so, or be sent to where it leads: why, and what to do."""


class NoSuchGroup(BridgeError):
    """The desk has no group of this number."""


class TokenRefused(BridgeError):
    """A token cannot be made or revoked so: why, and what to do."""


class KeyReused(BridgeError):
    """Something else was asked under the same idempotency key; nothing was done."""


class RequestUnderWay(BridgeError):
    """The same request is done just now."""


class RequestTakenOver(BridgeError):
    """Another process does a request, since this one was away for too long; nothing was done by this one."""


class RequestRefused(BridgeError):
    """A request to the console's API is not done: why, and what to do.

    Parameters:
        name: of the kind of problem that it is (bridge.console.api.problem_details).
        detail: what happened, and what to do.
        headers: of the answer.
        more: members of the answer besides, for programs.
    """

    def __init__(self, name: str, detail: str, headers: Mapping[str, str] | None = None, **more: object) -> None:
        self.name, self.headers, self.more = name, dict(headers or {}), more
        super().__init__(detail)


class UnreadableJson(ValueError):
    """A text that is no JSON, or that exceeds the limits. Its words never quote the text, which may hold a secret."""


def how_to_install(*extras: str) -> str:
    """Return the command that installs extras: from a clone, as no package index has the project.

    >>> how_to_install("console")
    "in a clone of the project's repository: pip install '.[console]'"
    """
    return f"in a clone of the project's repository: pip install '.[{','.join(extras)}]'"
