"""Of which Kafka the letters are: offsets of one cluster mean nothing in another; and which database this is."""

import uuid

from bridge.deadletters.store.database import Database, holds
from bridge.errors import DeskOfAnotherKafka


def check_cluster(database: Database, cluster: str) -> None:
    """Hold a database to one Kafka: that of who asks first.

    Parameters:
        cluster: the id of the Kafka that is asked about.

    Raises:
        DeskOfAnotherKafka: the letters are of another.
        DeskUnavailable: the database did not answer.
    """
    with database.writing() as connection:
        found = holds(connection, "cluster", cluster)
    if found != cluster:
        raise DeskOfAnotherKafka(
            f"The dead letters' database ({database.name}) holds those of the Kafka cluster {found!r}, and this is "
            f"{cluster!r}: offsets of the one mean nothing in the other. Name another database in "
            "DEADLETTERS_DATABASE_URL, or the Kafka that it is of."
        )


def identity_of(database: Database) -> str:
    """Return the id that a database has for good, by whichever address it is reached.

    Raises:
        DeskUnavailable: the database did not answer.
    """
    with database.writing() as connection:
        return holds(connection, "database", uuid.uuid4().hex)
