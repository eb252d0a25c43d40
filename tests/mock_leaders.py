"""Takes the leaders of partitions of librdkafka's mock cluster away, which Python's client has no call for."""

import ctypes

from bridge.embedded import EmbeddedKafka
from tests.raw_producer import load_librdkafka

#: The mock's value for no leader.
_NOBODY = -1


def take_leader(kafka: EmbeddedKafka, topic: str, partition: int) -> None:
    """Leave a partition without a leader: nobody can read or write it."""
    _set_leader(kafka, topic, partition, _NOBODY)


def give_leader(kafka: EmbeddedKafka, topic: str, partition: int) -> None:
    """Make the cluster's one broker the leader of a partition again."""
    _set_leader(kafka, topic, partition, 1)


def _set_leader(kafka: EmbeddedKafka, topic: str, partition: int, broker: int) -> None:
    lib = load_librdkafka()
    lib.rd_kafka_handle_mock_cluster.restype = ctypes.c_void_p
    # The client's first field behind Python's own two is its handle (confluent_kafka.h, Handle).
    handle = ctypes.c_void_p.from_address(id(kafka._cluster) + object.__basicsize__)
    cluster = ctypes.c_void_p(lib.rd_kafka_handle_mock_cluster(handle))
    error = lib.rd_kafka_mock_partition_set_leader(
        cluster, topic.encode(), ctypes.c_int32(partition), ctypes.c_int32(broker)
    )
    assert error == 0, error
