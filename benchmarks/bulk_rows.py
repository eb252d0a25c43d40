"""Records of 200 bytes into a table of PostgreSQL: a transaction each, and lists of a bulk handler."""

import psycopg

from benchmarks.rates import Way, compare
from benchmarks.ways import RAW_WORKER, ours, raw
from tests.servers.postgres import PostgresServer

COUNT = 200_000
FEW = 5_000


def main() -> None:
    """The server has no fsync, as the tests': what is measured is the way to it."""
    with PostgresServer() as postgres:
        with psycopg.connect(postgres.dsn, autocommit=True) as connection:
            connection.execute("CREATE TABLE moves (number bigint, text text)")
        database = {"DATABASE": postgres.dsn}
        ways = {
            "raw Celery, INSERT": Way(raw(FEW, "insert", RAW_WORKER, **database)),
            "no option set, INSERT": Way(ours("rows", FEW, **database)),
            "bulk=500, executemany": Way(ours("rows500", COUNT, **database)),
            "bulk=500, COPY": Way(ours("copy500", COUNT, **database)),
            "bulk=5000, COPY": Way(ours("copy5000", COUNT, **database)),
        }
        compare("bulk rows", ways, rows=FEW, rows500=COUNT, copy500=COUNT, copy5000=COUNT)
    print("bulk rows: wanted 50,000/s")
