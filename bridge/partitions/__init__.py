"""One assigned partition: ready records, ordering, safe offset, retry partitions; nothing acts."""
