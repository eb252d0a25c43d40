"""The poll loop of a bridge: read, hand off, commit; rebalances, start offsets and log identity."""
